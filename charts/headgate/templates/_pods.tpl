{{- /* Fields of every pod of the chart: the restricted Pod Security Standard, any user id. */ -}}
{{- define "headgate.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "headgate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "headgate.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The variables of a process's connection, as the operator passes them to workers. */ -}}
{{- define "headgate.connectionEnv" -}}
{{- $secret := default (include "headgate.secret" .) (include "headgate.workersSecret" .) -}}
{{- range tuple "CONTACT_POINTS" "DATA_CENTER" "USERNAME" "PASSWORD" "USE_SSL" "KEYSPACE" "CLUSTER_NAME" }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ . }}, optional: {{ ne . "CONTACT_POINTS" }}}}
{{- end }}
- {name: SSL_DIRECTORY, value: /etc/headgate/tls}
{{- end -}}

{{- /* The content of a connection Secret: (dict "root" . "username" ... "password" ...) */ -}}
{{- define "headgate.connectionData" -}}
{{- $c := .root.Values.connection -}}
{{- if .root.Values.cassandra.enabled -}}
CONTACT_POINTS: {{ printf "%s-cassandra.%s.svc" (include "headgate.fullname" .root) .root.Release.Namespace | b64enc }}
DATA_CENTER: {{ "dc1" | b64enc }}
{{- else -}}
CONTACT_POINTS: {{ join "," $c.contactPoints | b64enc }}
{{- with $c.dataCenter }}
DATA_CENTER: {{ . | b64enc }}
{{- end }}
{{- end }}
{{- with $c.keyspace }}
KEYSPACE: {{ . | b64enc }}
{{- end }}
{{- with $c.clusterName }}
CLUSTER_NAME: {{ . | b64enc }}
{{- end }}
{{- with .username }}
USERNAME: {{ . | b64enc }}
{{- end }}
{{- with .password }}
PASSWORD: {{ . | b64enc }}
{{- end }}
{{- if $c.tls.enabled }}
USE_SSL: {{ "true" | b64enc }}
{{- with $c.tls.ca }}
ca.crt: {{ . | b64enc }}
{{- end }}
{{- with $c.tls.certificate }}
tls.crt: {{ . | b64enc }}
{{- end }}
{{- with $c.tls.key }}
tls.key: {{ . | b64enc }}
{{- end }}
{{- end }}
{{- with $c.graphite.address }}
METRICS_GRAPHITE: {{ "true" | b64enc }}
GRAPHITE_URL: {{ . | b64enc }}
{{- end }}
{{- with $c.graphite.prefix }}
GRAPHITE_PREFIX: {{ . | b64enc }}
{{- end }}
{{- end -}}

{{- /* The annotations of a hook's objects: (dict "on" "pre-install,pre-upgrade" "weight" -5 "deleted" ...) */ -}}
{{- define "headgate.hook" -}}
"helm.sh/hook": {{ .on }}
"helm.sh/hook-weight": {{ .weight | quote }}
"helm.sh/hook-delete-policy": {{ default "before-hook-creation,hook-succeeded" .deleted }}
{{- end -}}

{{- /* The account of a hook's Job and its rights: (dict "root" . "name" ... "on" ... "cluster" rules "home" rules) */ -}}
{{- define "headgate.hookRights" -}}
{{- $labels := include "headgate.labels" .root -}}
{{- $hook := include "headgate.hook" (dict "on" .on "weight" -10) -}}
{{- $subject := printf "{kind: ServiceAccount, name: %s, namespace: %s}" .name .root.Release.Namespace -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $hook | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $hook | nindent 4 }}
rules:
  {{- toYaml .cluster | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $hook | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects:
  - {{ $subject }}
{{- if .home }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $hook | nindent 4 }}
rules:
  {{- toYaml .home | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    {{- $hook | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}}
subjects:
  - {{ $subject }}
{{- end }}
{{- end -}}

{{- /* The Job: (dict "root" . "name" ... "on" ... "component" ... "command" list "seconds" 120) */ -}}
{{- define "headgate.hookJob" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "headgate.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  annotations:
    {{- include "headgate.hook" (dict "on" .on "weight" 0) | nindent 4 }}
    # Helm prints the Job's log, from version 3.18 on.
    "helm.sh/hook-output-log-policy": hook-failed
spec:
  backoffLimit: {{ .retries }}
  activeDeadlineSeconds: {{ .seconds }}
  template:
    metadata:
      labels:
        {{- include "headgate.selector" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ .name }}
      enableServiceLinks: false
      {{- include "headgate.pullSecrets" .root | nindent 6 }}
      {{- with .root.Values.operator.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .root.Values.operator.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.operator.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "headgate.podSecurity" .root | nindent 8 }}
      containers:
        - name: {{ .component }}
          image: {{ include "headgate.image" .root | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: {{ toJson .command }}
          resources:
            requests: {cpu: 50m, memory: 96Mi}
            limits: {memory: 256Mi}
          securityContext:
            {{- include "headgate.containerSecurity" .root | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
      volumes:
        - {name: tmp, emptyDir: {}}
{{- end -}}
