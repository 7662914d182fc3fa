{{- define "headgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "headgate.operator" -}}
{{ include "headgate.fullname" . }}-operator
{{- end -}}

{{- define "headgate.account" -}}
{{ default (include "headgate.operator" .) .Values.serviceAccount.name }}
{{- end -}}

{{- /* The selector of pods; it never changes for a release. */ -}}
{{- define "headgate.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headgate.labels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: headgate
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* An image reference of a pod: (dict "of" .Values.image "root" . "tag" default) */ -}}
{{- define "headgate.imageOf" -}}
{{- $registry := default .of.registry .root.Values.global.imageRegistry -}}
{{- $path := ternary (printf "%s/%s" $registry .of.repository) .of.repository (ne $registry "") -}}
{{- if .of.digest -}}
{{ $path }}@{{ .of.digest }}
{{- else -}}
{{ $path }}:{{ default .tag .of.tag }}
{{- end -}}
{{- end -}}

{{- define "headgate.image" -}}
{{ include "headgate.imageOf" (dict "of" .Values.image "root" . "tag" .Chart.AppVersion) }}
{{- end -}}

{{- define "headgate.secret" -}}
{{ default "headgate-connection" .Values.connection.existingSecret }}
{{- end -}}

{{- /* The Secret of pods, if they have one of their own; empty: they have the operator's. */ -}}
{{- define "headgate.workersSecret" -}}
{{- $w := .Values.connection.workers -}}
{{- if $w.existingSecret -}}
{{ $w.existingSecret }}
{{- else if $w.username -}}
{{ include "headgate.fullname" . }}-workers
{{- end -}}
{{- end -}}

{{- define "headgate.rights" -}}
{{ .Files.Get "files/rights.yaml" }}
{{- end -}}
