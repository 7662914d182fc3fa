{{- /* Mistakes that a schema cannot find: one line each. */ -}}
{{- define "headgate.checks" -}}
{{- $c := .Values.connection -}}
{{- $ways := list -}}
{{- if $c.existingSecret }}{{ $ways = append $ways "connection.existingSecret" }}{{ end -}}
{{- if $c.contactPoints }}{{ $ways = append $ways "connection.contactPoints" }}{{ end -}}
{{- if .Values.cassandra.enabled }}{{ $ways = append $ways "cassandra.enabled" }}{{ end -}}
{{- if eq (len $ways) 0 -}}
{{- fail "No connection to Cassandra: set connection.existingSecret, connection.contactPoints, or for a trial cassandra.enabled=true" -}}
{{- end -}}
{{- if gt (len $ways) 1 -}}
{{- fail (printf "More than one connection to Cassandra: set one of %s" (join " and " $ways)) -}}
{{- end -}}
{{- if $c.existingSecret -}}
{{- if $c.workers.username -}}
{{- fail "connection.workers.username and connection.existingSecret are both set: create a Secret, and set connection.workers.existingSecret" -}}
{{- end -}}
{{- if eq $c.workers.existingSecret $c.existingSecret -}}
{{- fail "connection.workers.existingSecret is the operator's own Secret: create one with a role of its own, or leave it empty" -}}
{{- end -}}
{{- range tuple "dataCenter" "keyspace" "clusterName" "username" "password" -}}
{{- if index $c . -}}
{{- fail (printf "connection.%s and connection.existingSecret are both set: put the value into that Secret" .) -}}
{{- end -}}
{{- end -}}
{{- if or $c.tls.enabled $c.tls.ca $c.tls.certificate $c.tls.key -}}
{{- fail "connection.tls and connection.existingSecret are both set: put USE_SSL, ca.crt, tls.crt and tls.key into that Secret" -}}
{{- end -}}
{{- end -}}
{{- if and $c.username (not $c.password) -}}
{{- fail "connection.username is set and connection.password is not: set both, or neither" -}}
{{- end -}}
{{- if and $c.password (not $c.username) -}}
{{- fail "connection.password is set and connection.username is not: set both, or neither" -}}
{{- end -}}
{{- if and $c.workers.existingSecret $c.workers.username -}}
{{- fail "connection.workers.existingSecret and connection.workers.username are both set: set one of them" -}}
{{- end -}}
{{- if ne (not $c.workers.username) (not $c.workers.password) -}}
{{- fail "connection.workers.username and connection.workers.password belong together: set both, or neither" -}}
{{- end -}}
{{- if and $c.workers.username (eq $c.workers.username $c.username) -}}
{{- fail "connection.workers.username is connection.username: create a role for workers that has SELECT and MODIFY only" -}}
{{- end -}}
{{- if and (or $c.tls.ca $c.tls.certificate $c.tls.key) (not $c.tls.enabled) -}}
{{- fail "connection.tls has certificates and connection.tls.enabled is false: enable it, or remove them" -}}
{{- end -}}
{{- if ne (not $c.tls.certificate) (not $c.tls.key) -}}
{{- fail "connection.tls.certificate and connection.tls.key belong together: set both, or neither" -}}
{{- end -}}
{{- range tuple "ca" "certificate" "key" -}}
{{- if and (index $c.tls .) (not (contains "-----BEGIN" (index $c.tls .))) -}}
{{- fail (printf "connection.tls.%s is not PEM: it has no line with -----BEGIN (helm reads a file by --set-file)" .) -}}
{{- end -}}
{{- end -}}
{{- if and $c.existingSecret (or $c.graphite.address $c.graphite.prefix) -}}
{{- fail "connection.graphite and connection.existingSecret are both set: put METRICS_GRAPHITE and GRAPHITE_URL into that Secret" -}}
{{- end -}}
{{- if and $c.graphite.prefix (not $c.graphite.address) -}}
{{- fail "connection.graphite.prefix is set and connection.graphite.address is not" -}}
{{- end -}}
{{- if and (not .Values.crds.keep) (not .Values.uninstall.guard) -}}
{{- fail "crds.keep=false needs uninstall.guard=true: the guard removes the resources and then the CRDs" -}}
{{- end -}}
{{- range .Values.alerts.disabled -}}
{{- if not (has . (include "headgate.alertNames" $ | fromJsonArray)) -}}
{{- fail (printf "alerts.disabled: there is no alert %s" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
