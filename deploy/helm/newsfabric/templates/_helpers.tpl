{{- define "newsfabric.labels" -}}
app.kubernetes.io/name: newsfabric
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
newsfabric/region: {{ .root.Values.region }}
{{- end }}

{{/* The services of a core, as in newsfabric/kinds.py: words after `python -m`, the port of the pod, whether it reads topics.toml, the right at the store. */}}
{{- define "newsfabric.services" -}}
router: {command: [wholesale, router], port: 9110, topics: true, store: writer}
mailbox: {command: [wholesale, mailbox], port: 9120, topics: true, store: writer}
frontdesk: {command: [wholesale, frontdesk], port: 8080, topics: true, store: reader}
scaler: {command: [wholesale, scaler], port: 9103}
keeper: {command: [shovels], port: 9102, topics: true}
{{- end }}

{{- define "newsfabric.selector" -}}
app.kubernetes.io/name: newsfabric
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "newsfabric.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* The own region of fabric, as YAML; fails where there is none. */}}
{{- define "newsfabric.own" -}}
{{- $found := dict -}}
{{- range .Values.fabric.regions }}{{ if eq .name $.Values.region }}{{ $found = . }}{{ end }}{{ end -}}
{{- if not $found }}{{ fail (printf "fabric has no region %q" .Values.region) }}{{ end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Seconds that the drain of a full box takes. */}}
{{- define "newsfabric.drain" -}}
{{- max (int .Values.retail.drainSeconds) (int (ceil (divf .Values.retail.capacity .Values.retail.drainPerSecond))) -}}
{{- end }}

{{- define "newsfabric.grace" -}}
{{- $least := add (include "newsfabric.drain" .) 60 -}}
{{- $given := int .Values.retail.terminationGracePeriodSeconds -}}
{{- if and $given (lt $given (int $least)) -}}
{{- fail (printf "retail.terminationGracePeriodSeconds is %d: the drain of a full box and a minute are %d" $given (int $least)) -}}
{{- end -}}
{{- $given | default $least -}}
{{- end }}

{{- define "newsfabric.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "newsfabric.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Environment of every process: its name, its logs, whom it trusts, what its own port shows. */}}
{{- define "newsfabric.environment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: NEWSFABRIC_LOG_FORMAT, value: json}
{{- if .Values.tls.secretName }}
- {name: NEWSFABRIC_TLS_CA_FILE, value: /etc/newsfabric/tls/ca.pem}
- {name: NEWSFABRIC_TLS_CERT_FILE, value: /etc/newsfabric/tls/cert.pem}
- {name: NEWSFABRIC_TLS_KEY_FILE, value: /etc/newsfabric/tls/key.pem}
{{- end }}
{{- end }}

{{/* . is a login of the store. */}}
{{- define "newsfabric.storeLogin" -}}
- {name: NEWSFABRIC_CASSANDRA_USERNAME, value: {{ . | quote }}}
- {name: NEWSFABRIC_CASSANDRA_PASSWORD_FILE, value: "/etc/newsfabric/secrets/{{ . }}"}
{{- end }}

{{- define "newsfabric.tokens" -}}
{{- with .Values.tokens }}{{ if .keys }}
- --token-keys={{ .keys }}
- --token-audience={{ .audience }}
- --token-issuer={{ .issuer }}
{{- end }}{{ end }}
{{- end }}

{{/* TLS files stay a folder's: a file mounted alone (subPath) would never be renewed. */}}
{{- define "newsfabric.mounts" -}}
- {name: settings, mountPath: /etc/newsfabric/settings, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .Values.tls.secretName }}
- {name: tls, mountPath: /etc/newsfabric/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "newsfabric.volumes" -}}
- name: settings
  configMap: {name: {{ .Values.region }}-settings}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- if .Values.tls.secretName }}
- name: tls
  secret:
    secretName: {{ .Values.tls.secretName }}
    defaultMode: 0440
    items:
      - {key: ca.crt, path: ca.pem}
      - {key: tls.crt, path: cert.pem}
      - {key: tls.key, path: key.pem}
{{- end }}
{{- end }}

{{- define "newsfabric.placement" -}}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "newsfabric.selector" . | nindent 8 }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "newsfabric.selector" . | nindent 8 }}
{{- end }}

{{/* Probes of a process's HTTP port: what it says of itself, by the pod's address. */}}
{{- define "newsfabric.probes" -}}
readinessProbe:
  httpGet: {path: /healthz/ready, port: {{ .port }}, scheme: {{ .scheme }}}
  periodSeconds: 2
  timeoutSeconds: 2
livenessProbe:
  httpGet: {path: /healthz/live, port: {{ .port }}, scheme: {{ .scheme }}}
  initialDelaySeconds: 30
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}
