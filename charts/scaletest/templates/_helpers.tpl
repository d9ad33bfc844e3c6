{{/* Labels and selectors are those of the fleet's chart, with this chart's components. */}}

{{- define "scaletest.image" -}}
{{ include "bigfleet.image" (dict "Values" (dict "image" .Values.global.loaddriver) "Chart" .Chart) }}
{{- end }}

{{- define "scaletest.fleetImage" -}}
{{ include "bigfleet.image" (dict "Values" .Values.bigfleet "Chart" .Chart) }}
{{- end }}

{{/* The names of all nested clusters, with commas. */}}
{{- define "scaletest.clusters" -}}
{{- $names := list -}}
{{- range until (int .Values.clusters) }}{{ $names = append $names (printf "c%d" (add 1 .)) }}{{ end -}}
{{ join "," $names }}
{{- end }}

{{/* Those, and `host` for a federation. */}}
{{- define "scaletest.apiServers" -}}
{{ include "scaletest.clusters" . }}{{ if .Values.federation.enabled }},host{{ end }}
{{- end }}

{{/* How many pods send the load: one worker alone is a process of the runner's pod. */}}
{{- define "scaletest.loadWorkers" -}}
{{- $workers := int .Values.load.workers -}}
{{ and .Values.nestedClusters.enabled (gt $workers 1) | ternary $workers 0 }}
{{- end }}

{{/* Whether nested clusters have a Karpenter each, as text. */}}
{{- define "scaletest.karpenter" -}}
{{- with .Values.nestedClusters }}{{ if and .enabled (eq .system "karpenter") }}true{{ end }}{{ end }}
{{- end }}

{{- define "scaletest.karpenterImage" -}}
{{ include "bigfleet.image" (dict "Values" (dict "image" .Values.controlPlane.karpenter) "Chart" .Chart) }}
{{- end }}

{{/* A host of this namespace. Takes (list . "NAME"). */}}
{{- define "scaletest.host" -}}
{{- $root := index . 0 -}}
{{ index . 1 }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.bigfleet.clusterDomain }}
{{- end }}

{{/* HOST:PORT of pod N of a StatefulSet of the fleet. Takes (list . "component" N PORT). */}}
{{- define "scaletest.podAddress" -}}
{{- $root := index . 0 -}}
{{- $fleet := dict "Release" $root.Release "Values" $root.Values.bigfleet -}}
{{ include "bigfleet.podAddress" (list $fleet (index . 1) (index . 2) (index . 3)) }}
{{- end }}

{{/* A nested cluster, as places.yaml tells of it. Takes (list . "NAME"). */}}
{{- define "scaletest.clusterPlace" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s" $root.Release.Name (index . 1) -}}
{{- $host := include "scaletest.host" (list $root $name) -}}
name: {{ index . 1 }}
pod: {{ $name }}-0
host: {{ $host }}
apiServer: https://{{ $host }}:6443
files: http://{{ $host }}:8090
secret: {{ $name }}
access: {{ $name }}-access
{{- end }}

{{/* The Secret with a process's identity. Takes (list . "NAME"). */}}
{{- define "scaletest.identitySecret" -}}
{{ printf (index . 0).Values.bigfleet.identity.secretName (index . 1) }}
{{- end }}

{{/* What all pods have in common. Takes (list . "component"). */}}
{{- define "scaletest.podSpec" -}}
{{- $root := index . 0 -}}
{{- $placement := dict "nodeSelector" $root.Values.nodeSelector "tolerations" $root.Values.tolerations -}}
{{ include "bigfleet.podSpec" (list $root (index . 1) $placement) }}
{{- end }}

{{/* The image of the harness in a container. */}}
{{- define "scaletest.harness" -}}
image: {{ include "scaletest.image" . }}
imagePullPolicy: {{ .Values.global.loaddriver.pullPolicy }}
securityContext: {{ include "bigfleet.containerSecurity" . | nindent 2 }}
{{- end }}

{{/* Where a pod of the harness finds the others. */}}
{{- define "scaletest.placesEnvironment" -}}
- {name: LOADDRIVER_RELEASE, value: /release}
{{- end }}

{{- define "scaletest.placesVolume" -}}
- name: places
  configMap: {name: {{ .Release.Name }}-places}
{{- end }}

{{/* The ServiceAccount's token, for the few pods that call this cluster's API. */}}
{{- define "scaletest.apiVolume" -}}
- name: api
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "scaletest.apiMount" -}}
- {name: api, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{/* Kubeconfigs of nested clusters; PATH has the cluster's name in place of %s. Takes (list . NAMES PATH KEYS). */}}
{{- define "scaletest.accessVolume" -}}
{{- $root := index . 0 -}}
{{- $names := index . 1 -}}
{{- $path := index . 2 -}}
{{- $keys := index . 3 -}}
- name: access
  projected:
    defaultMode: 0440
    sources:
      {{- range $name := splitList "," (include $names $root) }}
      - secret:
          name: {{ $root.Release.Name }}-{{ $name }}-access
          items:
            {{- range $keys }}
            - {key: {{ . }}.kubeconfig, path: {{ printf $path $name . }}}
            {{- end }}
      {{- end }}
{{- end }}

{{/* Flags from a map, sorted by name. */}}
{{- define "scaletest.flags" -}}
{{- range $flag, $value := . }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}

{{/* Probes of a role's health endpoints. Liveness is slow to judge: a busy host is not a dead role. Takes a port. */}}
{{- define "scaletest.roleProbes" -}}
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  timeoutSeconds: 5
  periodSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  timeoutSeconds: 5
  periodSeconds: 10
  # Its imports take seconds, and on a full host many.
  initialDelaySeconds: 60
  failureThreshold: 12
{{- end }}

{{- define "scaletest.apiServerEgress" -}}
# This cluster's API server, wherever it is: a policy cannot name a host.
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end }}

{{/* As on one machine: more memory for less CPU time. */}}
{{- define "scaletest.goEnvironment" -}}
- {name: GOGC, value: "200"}
- {name: HOME, value: /tmp}
{{- end }}

{{/* The profile, as arguments of the harness. BigFleet is the system of most profiles anyway. */}}
{{- define "scaletest.profileArguments" -}}
- {{ .Values.profile }}
- --substrate=pods
{{- if not .Values.nestedClusters.fleet }}
- --set=system={{ .Values.nestedClusters.system }}
{{- end }}
{{- range .Values.overrides }}
- {{ printf "--set=%s" . | quote }}
{{- end }}
{{- if not (kindIs "invalid" .Values.seed) }}
- --seed={{ int64 .Values.seed }}
{{- end }}
{{- end }}
