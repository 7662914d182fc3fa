{{- /* files/alerts.yaml with its threshold, as text. */ -}}
{{- define "headgate.alertFile" -}}
{{ .Files.Get "files/alerts.yaml" | replace "QUEUE_LAG_SECONDS" (.Values.alerts.queueLagSeconds | toString) }}
{{- end -}}

{{- define "headgate.alertNames" -}}
{{- $names := list -}}
{{- range (include "headgate.alertFile" . | fromYaml).groups -}}
{{- range .rules -}}
{{- $names = append $names .alert -}}
{{- end -}}
{{- end -}}
{{ toJson $names }}
{{- end -}}
