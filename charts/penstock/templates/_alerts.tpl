{{- /* files/alerts.yaml with its threshold, as text. */ -}}
{{- define "penstock.alertFile" -}}
{{ .Files.Get "files/alerts.yaml" | replace "QUEUE_LAG_SECONDS" (.Values.alerts.queueLagSeconds | toString) }}
{{- end -}}

{{- define "penstock.alertNames" -}}
{{- $names := list -}}
{{- range (include "penstock.alertFile" . | fromYaml).groups -}}
{{- range .rules -}}
{{- $names = append $names .alert -}}
{{- end -}}
{{- end -}}
{{ toJson $names }}
{{- end -}}
