{{/* Labels of an object. Takes (list . "component"). */}}
{{- define "bigfleet.labels" -}}
{{- $root := index . 0 -}}
{{ include "bigfleet.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* Labels by which a component's pods are selected. Takes (list . "component"). */}}
{{- define "bigfleet.selector" -}}
app.kubernetes.io/name: bigfleet
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "bigfleet.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* HOST:PORT of pod N of a StatefulSet. Takes (list . "component" N PORT). */}}
{{- define "bigfleet.podAddress" -}}
{{- $root := index . 0 -}}
{{- $set := printf "%s-%s" $root.Release.Name (index . 1) -}}
{{ $set }}-{{ index . 2 }}.{{ $set }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}:{{ index . 3 }}
{{- end }}

{{/* The addresses of all coordinators. */}}
{{- define "bigfleet.coordinators" -}}
{{- $addresses := list -}}
{{- range until (int .Values.coordinator.replicas) -}}
{{- $addresses = append $addresses (include "bigfleet.podAddress" (list $ "coordinator" . 7791)) -}}
{{- end -}}
{{ join "," $addresses }}
{{- end }}

{{/* Whether a role's flag is set although its value may be 0. Takes (list "--flag" VALUE). */}}
{{- define "bigfleet.optionalFlag" -}}
{{- if not (kindIs "invalid" (index . 1)) }}
- {{ printf "%s=%v" (index . 0) (index . 1) | quote }}
{{- end }}
{{- end }}

{{/* What all pods have in common. Takes (list . "component" (dict "nodeSelector" .. "tolerations" ..)). */}}
{{- define "bigfleet.podSpec" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $placement := index . 2 -}}
serviceAccountName: {{ $root.Release.Name }}-{{ $component }}
# No role of this chart calls the Kubernetes API of its own cluster.
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  # The user of the image; it must own what it creates in its volume.
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $placement.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $placement.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- range $key, $policy := $root.Values.topologySpread }}
  - topologyKey: {{ eq $key "zone" | ternary "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    maxSkew: 1
    whenUnsatisfiable: {{ $policy }}
    labelSelector:
      matchLabels: {{ include "bigfleet.selector" (list $root $component) | nindent 8 }}
{{- end }}
{{- end }}

{{- define "bigfleet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Probes of a role's health endpoints. Liveness is slow to judge: a busy host is not a dead role. */}}
{{- define "bigfleet.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: observe}
  timeoutSeconds: 5
  periodSeconds: 2
  # Ten minutes: a shard without its cache of kernels compiles for ten seconds, on a full host for
  # minutes, and a restart does not make it faster.
  failureThreshold: 300
readinessProbe:
  httpGet: {path: /readyz, port: observe}
  timeoutSeconds: 5
  periodSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: observe}
  timeoutSeconds: 5
  periodSeconds: 10
  failureThreshold: 6
{{- end }}

{{/* The name of the Secret with a pod's identity. Takes (list . "POD"). */}}
{{- define "bigfleet.identitySecret" -}}
{{ printf (index . 0).Values.identity.secretName (index . 1) }}
{{- end }}

{{/*
The identities of all pods of a StatefulSet, each in a folder with the pod's name: pods of one set
have one template, and a mount of the own folder alone (subPath) would never see a renewed one.
Takes (list . "component" REPLICAS).
*/}}
{{- define "bigfleet.identities" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
name: identities
projected:
  defaultMode: 0440
  sources:
  {{- range until (int (index . 2)) }}
  {{- $pod := printf "%s-%s-%d" $root.Release.Name $component . }}
    - secret:
        name: {{ include "bigfleet.identitySecret" (list $root $pod) }}
        items:
        {{- range list "tls.crt" "tls.key" "ca.crt" }}
          - {key: {{ . }}, path: {{ $pod }}/{{ . }}}
        {{- end }}
  {{- end }}
{{- end }}

{{- define "bigfleet.podName" -}}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
{{- end }}

{{/* A volume claim template. Takes a role's `storage`. */}}
{{- define "bigfleet.claimSpec" -}}
accessModes: [ReadWriteOnce]
{{- with .className }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end }}

{{/* What becomes of a StatefulSet's volumes when it is deleted. */}}
{{- define "bigfleet.volumeRetention" -}}
persistentVolumeClaimRetentionPolicy:
  whenDeleted: {{ .Values.keepVolumes | ternary "Retain" "Delete" }}
  whenScaled: Retain
{{- end }}

{{- define "bigfleet.dnsEgress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}

{{/* Metrics and health, for whoever scrapes them. */}}
{{- define "bigfleet.observeIngress" -}}
- ports:
    - port: observe
  from:
    {{- with .Values.networkPolicy.monitoring }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    - namespaceSelector: {}
    {{- end }}
{{- end }}

{{/* The pods of a component. Takes (list . "component"). */}}
{{- define "bigfleet.peer" -}}
- podSelector:
    matchLabels: {{ include "bigfleet.selector" . | nindent 6 }}
{{- end }}
