{{/* Labels of an object. Takes (list . "component"). */}}
{{- define "bigfleet-cluster.labels" -}}
{{- $root := index . 0 -}}
{{ include "bigfleet-cluster.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* Labels by which a component's pods are selected. Takes (list . "component"). */}}
{{- define "bigfleet-cluster.selector" -}}
app.kubernetes.io/name: bigfleet
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* A flag, unless its value is null. Takes (list "--flag" VALUE). */}}
{{- define "bigfleet-cluster.optionalFlag" -}}
{{- if not (kindIs "invalid" (index . 1)) }}
- {{ printf "%s=%v" (index . 0) (index . 1) | quote }}
{{- end }}
{{- end }}

{{/* The components that run here. */}}
{{- define "bigfleet-cluster.components" -}}
operator{{ if .Values.podController.enabled }},pod-controller{{ end }}
{{- end }}

{{/* The settings of a component. Takes (list . "component"). */}}
{{- define "bigfleet-cluster.replicas" -}}
{{- $values := (index . 0).Values -}}
{{ ternary $values.operator.replicas $values.podController.replicas (eq (index . 1) "operator") }}
{{- end }}

{{/*
Objects of the product's own files, labelled. The files are those that the product installs; a
namespace that Helm creates itself is left out. Takes (list . GLOB ANNOTATIONS).
*/}}
{{- define "bigfleet-cluster.productObjects" -}}
{{- $root := index . 0 -}}
{{- $annotations := index . 2 -}}
{{- range $path, $_ := $root.Files.Glob (index . 1) }}
{{- range splitList "\n---\n" ($root.Files.Get $path) }}
{{- $object := fromYaml . }}
{{- if $object.Error }}
{{- fail (printf "%s: %s" $path $object.Error) }}
{{- end }}
{{- $isRelease := and (eq $object.kind "Namespace") (eq $object.metadata.name $root.Release.Namespace) }}
{{- $isSimulation := and (eq $object.metadata.name "fake-host") (not $root.Values.simulatedMachines.enabled) }}
{{- if not (or $isRelease $isSimulation) }}
{{- $labels := include "bigfleet-cluster.labels" (list $root "installation") | fromYaml }}
{{- $added := dict "labels" $labels }}
{{- if $annotations }}
{{- $added = set $added "annotations" $annotations }}
{{- end }}
---
{{ toYaml (mergeOverwrite $object (dict "metadata" $added)) }}
{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A Deployment. Takes (list . "component" ARGUMENTS RESOURCES). */}}
{{- define "bigfleet-cluster.deployment" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: bigfleet-{{ $component }}
  labels: {{ include "bigfleet-cluster.labels" (list $root $component) | nindent 4 }}
spec:
  replicas: {{ include "bigfleet-cluster.replicas" (list $root $component) }}
  selector:
    matchLabels: {{ include "bigfleet-cluster.selector" (list $root $component) | nindent 6 }}
  template:
    metadata:
      labels: {{ include "bigfleet-cluster.selector" (list $root $component) | nindent 8 }}
    spec:
      serviceAccountName: bigfleet-{{ $component }}
      enableServiceLinks: false
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        # The user of the image; its group may read the identity.
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      {{- with $root.Values.nodeSelector }}
      nodeSelector: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.tolerations }}
      tolerations: {{ toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
      {{- range $key, $policy := $root.Values.topologySpread }}
        - topologyKey: {{ eq $key "zone" | ternary "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
          maxSkew: 1
          whenUnsatisfiable: {{ $policy }}
          labelSelector:
            matchLabels: {{ include "bigfleet-cluster.selector" (list $root $component) | nindent 14 }}
      {{- end }}
      containers:
        - name: {{ $component }}
          image: {{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: {{ index . 2 | nindent 12 }}
          ports:
            - {name: observe, containerPort: 8081}
          # Liveness is slow to judge: a busy host is not a dead role.
          startupProbe:
            httpGet: {path: /healthz, port: observe}
            timeoutSeconds: 5
            periodSeconds: 2
            failureThreshold: 60
          readinessProbe:
            httpGet: {path: /readyz, port: observe}
            timeoutSeconds: 5
            periodSeconds: 5
          livenessProbe:
            httpGet: {path: /healthz, port: observe}
            timeoutSeconds: 5
            periodSeconds: 10
            failureThreshold: 6
          resources: {{ toYaml (index . 3) | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if eq $component "operator" }}
            - {name: identity, mountPath: /identity, readOnly: true}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        {{- if eq $component "operator" }}
        - name: identity
          secret: {secretName: {{ $root.Values.identity.secretName }}, defaultMode: 0440}
        {{- end }}
{{- end }}
