{{/* Annotations of objects that exist only for a moment. They are removed also after a failure, as helm uninstall does
not remove them; Helm 4 prints their logs before. Arguments: the event, the weight. */}}
{{- define "gpu-operator.hook" -}}
helm.sh/hook: {{ index . 0 }}
helm.sh/hook-weight: {{ index . 1 | quote }}
helm.sh/hook-delete-policy: hook-succeeded,hook-failed,before-hook-creation
helm.sh/hook-output-log-policy: hook-failed
{{- end }}

{{/* The part of the pod spec that the pods of the hooks and the operator's have in common. */}}
{{- define "gpu-operator.ownPod" -}}
{{- with include "gpu-operator.pullSecrets" . }}{{ trim . }}
{{ end -}}
nodeSelector: {{ include "gpu-operator.setting" (list . "nodeSelector" (include "gpu-operator.default.nodeSelector" .)) }}
tolerations: {{ include "gpu-operator.setting" (list . "tolerations" (include "gpu-operator.default.tolerations" .)) }}
securityContext: {{ include "gpu-operator.default.podSecurityContext" . }}
{{- end }}

{{/* The part of the container spec that they have in common. */}}
{{- define "gpu-operator.ownContainer" -}}
image: {{ include "gpu-operator.image" . | quote }}
{{- with include "gpu-operator.given" (list . "imagePullPolicy") }}
{{ . }}
{{- end }}
resources: {{ include "gpu-operator.setting" (list . "resources" (include "gpu-operator.default.resources" .)) }}
securityContext: {{ include "gpu-operator.default.containerSecurityContext" . }}
terminationMessagePolicy: {{ include "gpu-operator.default.terminationMessagePolicy" . }}
{{- end }}
