{{/* Where a release has no nested clusters, it is about the cluster that it is installed in. */}}

{{/* Refuses what the host cluster cannot have, with the reason. */}}
{{- define "scaletest.hostChecks" -}}
{{- if .Release.IsUpgrade }}
{{- fail (printf "a release is one run: helm uninstall %s, then install it again" .Release.Name) }}
{{- end }}
{{- if not (has .Values.hostCluster.system (list "none" "command")) }}
{{- fail (printf "hostCluster.system: %s needs nested clusters, which nestedClusters.enabled and clusters give; the host cluster is measured with none or command" .Values.hostCluster.system) }}
{{- end }}
{{- range .Values.overrides }}
{{- $key := splitList "=" . | first }}
{{- if eq $key "system" }}
{{- fail (printf "overrides: %s: write hostCluster.system" .) }}
{{- end }}
{{- if or (eq $key "none") (eq $key "none.nodes") }}
{{- fail (printf "overrides: %s: write hostCluster.nodes, by which rights are granted" .) }}
{{- end }}
{{- if and (eq $key "clusters") (ne . "clusters=1") }}
{{- fail (printf "overrides: %s: the host cluster is one; write clusters=1" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A name for objects without a namespace, which another release must not have. */}}
{{- define "scaletest.hostRole" -}}
{{ .Release.Namespace }}-{{ .Release.Name }}-scaletest
{{- end }}

{{/* Whether the harness registers Nodes, as text. */}}
{{- define "scaletest.hostFleetNodes" -}}
{{- if and (eq .Values.hostCluster.system "none") (eq .Values.hostCluster.nodes "fleet") }}true{{ end }}
{{- end }}

{{/* The profile, as arguments of the harness. */}}
{{- define "scaletest.hostArguments" -}}
- {{ .Values.profile }}
- --substrate=existing
# The pod's ServiceAccount.
- --context=in-cluster
- --set=system={{ .Values.hostCluster.system }}
{{- if eq .Values.hostCluster.system "none" }}
- --set=none.nodes={{ .Values.hostCluster.nodes }}
{{- end }}
{{- range .Values.overrides }}
- {{ printf "--set=%s" . | quote }}
{{- end }}
{{- if not (kindIs "invalid" .Values.seed) }}
- --seed={{ int64 .Values.seed }}
{{- end }}
{{- end }}
