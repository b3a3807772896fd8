{{/* Fails if a value of the block operator is such that Kubernetes refuses the operator's pods: its message would name
a field of the Deployment, which no user of the chart knows. Argument: root. */}}
{{- define "gpu-operator.checkOperator" -}}
{{- $operator := .Values.operator | default dict -}}
{{- range $i, $toleration := $operator.tolerations -}}
{{- include "gpu-operator.checkToleration" (list (printf "operator.tolerations[%d]" $i) ($toleration | default dict)) -}}
{{- end -}}
{{- range $i, $variable := $operator.env -}}
{{- include "gpu-operator.checkVariable" (list (printf "operator.env[%d]" $i) ($variable | default dict)) -}}
{{- end -}}
{{- range $name := list "labels" "annotations" "nodeSelector" -}}
{{- include "gpu-operator.checkKeys" (list (printf "operator.%s" $name) (get $operator $name | default dict) (ne $name "annotations")) -}}
{{- end -}}
{{- range $name := concat (list $operator.priorityClassName) ($operator.imagePullSecrets | default list) | compact -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" (toString $name)) -}}
{{- fail (printf "operator.priorityClassName or operator.imagePullSecrets: %q is not the name of an object" (toString $name)) -}}
{{- end -}}
{{- end -}}
{{- include "gpu-operator.checkResources" (include "gpu-operator.withoutNulls" ($operator.resources | default dict) | fromJson) -}}
{{- include "gpu-operator.checkAffinity" ($operator.affinity | default dict) -}}
{{- end }}

{{/* Arguments: path, toleration. */}}
{{- define "gpu-operator.checkToleration" -}}
{{- $path := index . 0 -}}
{{- with index . 1 -}}
{{- $exists := eq (.operator | default "" | toString) "Exists" -}}
{{- if not (has (.operator | default "" | toString) (list "" "Exists" "Equal" "Lt" "Gt")) -}}
{{- fail (printf "%s.operator is %q: it must be Exists or Equal" $path (toString .operator)) -}}
{{- end -}}
{{- if not (has (.effect | default "" | toString) (list "" "NoSchedule" "PreferNoSchedule" "NoExecute")) -}}
{{- fail (printf "%s.effect is %q: it must be NoSchedule, PreferNoSchedule or NoExecute" $path (toString .effect)) -}}
{{- end -}}
{{- if and (not .key) (not $exists) -}}{{- fail (printf "%s.operator must be Exists if key is empty" $path) -}}{{- end -}}
{{- if and .value $exists -}}{{- fail (printf "%s.value must be empty if operator is Exists" $path) -}}{{- end -}}
{{- if and (hasKey . "tolerationSeconds") (not (kindIs "invalid" .tolerationSeconds)) (ne (.effect | default "" | toString) "NoExecute") -}}
{{- fail (printf "%s.effect must be NoExecute if tolerationSeconds is set" $path) -}}
{{- end -}}
{{- with .key -}}{{- include "gpu-operator.checkKey" (list (printf "%s.key" $path) .) -}}{{- end -}}
{{- end -}}
{{- end }}

{{/* Arguments: path, variable. */}}
{{- define "gpu-operator.checkVariable" -}}
{{- $path := index . 0 -}}
{{- with index . 1 -}}
{{- if not (regexMatch "^[ -<>-~]+$" (.name | default "" | toString)) -}}
{{- fail (printf "%s.name is %q: it must be the name of a variable" $path (.name | default "" | toString)) -}}
{{- end -}}
{{- if and .value .valueFrom -}}{{- fail (printf "%s: %s has value and valueFrom: remove one" $path .name) -}}{{- end -}}
{{- end -}}
{{- end }}

{{/* Arguments: path, map, whether the values are those of labels. */}}
{{- define "gpu-operator.checkKeys" -}}
{{- $path := index . 0 -}}{{- $areLabels := index . 2 -}}
{{- range $key, $value := index . 1 | default dict -}}
{{- include "gpu-operator.checkKey" (list $path $key) -}}
{{- if and $areLabels (not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" (include "gpu-operator.text" ($value | default "")))) -}}
{{- fail (printf "%s: %q is not the value of a label" $path (include "gpu-operator.text" $value)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Arguments: path, key of a label, an annotation or a taint. */}}
{{- define "gpu-operator.checkKey" -}}
{{- if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" (index . 1 | toString)) -}}
{{- fail (printf "%s: %q is not a key, such as team or example.com/team" (index . 0) (index . 1 | toString)) -}}
{{- end -}}
{{- end }}

{{/* Argument: resources of a container. */}}
{{- define "gpu-operator.checkResources" -}}
{{- $limits := .limits | default dict -}}
{{- range $list := list "limits" "requests" -}}
{{- range $name, $value := get $ $list | default dict -}}
{{- if not (or (contains "/" $name) (has $name (list "cpu" "memory" "ephemeral-storage")) (hasPrefix "hugepages-" $name)) -}}
{{- fail (printf "operator.resources.%s: %s is not a resource of containers: use cpu, memory or ephemeral-storage" $list $name) -}}
{{- end -}}
{{- if not (regexMatch "^([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$" (include "gpu-operator.text" $value)) -}}
{{- fail (printf "operator.resources.%s.%s is %q: it must be a quantity, such as 100m or 1Gi" $list $name (include "gpu-operator.text" $value)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $request := .requests -}}
{{- $limit := get $limits $name -}}
{{- if and (hasKey $limits $name) (gt (include "gpu-operator.amount" $request | float64) (include "gpu-operator.amount" $limit | float64)) -}}
{{- fail (printf "operator.resources.requests.%s is %s, which exceeds the limit of %s: lower it, or raise the limit" $name (include "gpu-operator.text" $request) (include "gpu-operator.text" $limit)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The number of a quantity. Argument: the quantity. */}}
{{- define "gpu-operator.amount" -}}
{{- $text := include "gpu-operator.text" . -}}
{{- $units := dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $unit := regexFind "([KMGTPE]i|[numkMGTPE])$" $text -}}
{{- if $unit -}}{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) -}}{{- else -}}{{- float64 $text -}}{{- end -}}
{{- end }}

{{/* Argument: affinity. */}}
{{- define "gpu-operator.checkAffinity" -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}{{- $preferred := "preferredDuringSchedulingIgnoredDuringExecution" -}}
{{- $nodes := .nodeAffinity | default dict -}}
{{- $terms := list -}}
{{- with get $nodes $required -}}
{{- if not .nodeSelectorTerms -}}{{- fail (printf "operator.affinity.nodeAffinity.%s needs nodeSelectorTerms" $required) -}}{{- end -}}
{{- $terms = .nodeSelectorTerms -}}
{{- end -}}
{{- range get $nodes $preferred | default list -}}{{- $terms = append $terms ((. | default dict).preference | default dict) -}}{{- end -}}
{{- range compact $terms -}}
{{- range .matchExpressions -}}{{- include "gpu-operator.checkExpression" . -}}{{- end -}}
{{- end -}}
{{- range $kind := list "podAffinity" "podAntiAffinity" -}}
{{- $pods := get $ $kind | default dict -}}
{{- $terms := get $pods $required | default list -}}
{{- range get $pods $preferred | default list -}}{{- $terms = append $terms ((. | default dict).podAffinityTerm | default dict) -}}{{- end -}}
{{- range $terms -}}
{{- if not (. | default dict).topologyKey -}}{{- fail (printf "operator.affinity.%s: a term has no topologyKey: set one, such as kubernetes.io/hostname" $kind) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Argument: an expression about labels of nodes. */}}
{{- define "gpu-operator.checkExpression" -}}
{{- $values := .values | default list -}}
{{- $name := printf "operator.affinity.nodeAffinity: the expression about %s" (.key | default "no key" | toString) -}}
{{- include "gpu-operator.checkKey" (list "operator.affinity.nodeAffinity" (.key | default "")) -}}
{{- if and (has .operator (list "In" "NotIn")) (not $values) -}}{{- fail (printf "%s has %s and no values" $name .operator) -}}{{- end -}}
{{- if and (has .operator (list "Exists" "DoesNotExist")) $values -}}{{- fail (printf "%s has %s and values: remove them" $name .operator) -}}{{- end -}}
{{- if and (has .operator (list "Gt" "Lt")) (or (ne (len $values) 1) (not (regexMatch "^-?[0-9]+$" (first $values | default "" | toString)))) -}}
{{- fail (printf "%s has %s, which needs one whole number in values" $name .operator) -}}
{{- end -}}
{{- if not (has .operator (list "In" "NotIn" "Exists" "DoesNotExist" "Gt" "Lt")) -}}
{{- fail (printf "%s has the operator %q: it must be In, NotIn, Exists, DoesNotExist, Gt or Lt" $name (.operator | default "" | toString)) -}}
{{- end -}}
{{- end }}
