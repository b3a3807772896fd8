{{/*
The values with the types of the policy's fields, as JSON: a whole number becomes a string if the field is one.
Keys that do not exist are collected in state.unknown, each with its block.
Arguments: value, node (of files/keys.json), path, state, and policy to leave out the chart's own keys.
*/}}
{{- define "gpu-operator.typed" -}}
{{- $value := .value -}}{{- $node := .node -}}{{- $path := .path -}}{{- $state := .state -}}{{- $policy := .policy -}}
{{- if kindIs "invalid" $value -}}
null
{{- else if and (hasKey $node "keys") (kindIs "map" $value) -}}
{{- $parts := list -}}
{{- range $key := keys $value | sortAlpha -}}
{{- $inner := get $value $key -}}
{{- $at := ternary $key (printf "%s.%s" $path $key) (eq $path "") -}}
{{- if not (hasKey $node.keys $key) -}}
{{- $_ := set $state "unknown" (append $state.unknown (dict "path" $at "key" $key "block" $path "siblings" (keys $node.keys | sortAlpha))) -}}
{{- else if not (kindIs "invalid" $inner) -}}
{{- $below := get $node.keys $key -}}
{{- if not (and $policy $below.chart) -}}
{{- $text := include "gpu-operator.typed" (dict "value" $inner "node" $below "path" $at "state" $state "policy" $policy) -}}
{{- if or (ne $text "{}") (eq (len $inner) 0) -}}
{{- $parts = append $parts (printf "%s:%s" (toJson $key) $text) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- printf "{%s}" (join "," $parts) -}}
{{- else if and (hasKey $node "items") (kindIs "slice" $value) -}}
{{- $parts := list -}}
{{- range $i, $inner := $value -}}
{{- $parts = append $parts (include "gpu-operator.typed" (dict "value" $inner "node" $node.items "path" (printf "%s[%d]" $path $i) "state" $state "policy" $policy)) -}}
{{- end -}}
{{- printf "[%s]" (join "," $parts) -}}
{{- else if and (hasKey $node "values") (kindIs "map" $value) -}}
{{- $parts := list -}}
{{- range $key := keys $value | sortAlpha -}}
{{- $parts = append $parts (printf "%s:%s" (toJson $key) (include "gpu-operator.typed" (dict "value" (get $value $key) "node" $node.values "path" (printf "%s.%s" $path $key) "state" $state "policy" $policy))) -}}
{{- end -}}
{{- printf "{%s}" (join "," $parts) -}}
{{- else if and (eq (get $node "as" | default "") "string") (not (kindIs "string" $value)) -}}
{{- include "gpu-operator.text" $value | toJson -}}
{{- else if and (eq (get $node "as" | default "") "quantity") (kindIs "float64" $value) -}}
{{- if eq $value (floor $value) }}{{ include "gpu-operator.text" $value }}{{ else }}{{ include "gpu-operator.text" $value | toJson }}{{ end -}}
{{- else -}}
{{- toJson $value -}}
{{- end -}}
{{- end }}

{{/* Fails if a value does not exist, with a suggestion. Argument: root. */}}
{{- define "gpu-operator.refuseUnknown" -}}
{{- $known := .Files.Get "files/keys.json" | fromJson -}}
{{- $state := dict "unknown" list -}}
{{- $_ := include "gpu-operator.typed" (dict "value" .Values "node" $known.keys "path" "" "state" $state "policy" false) -}}
{{- $complaints := list -}}
{{- range $state.unknown -}}
{{- $meant := include "gpu-operator.meant" (dict "unknown" . "paths" $known.paths) -}}
{{/* A parent chart shares its block global with all charts: keys that resemble none of ours are not for us. */}}
{{- if or (ne .block "global") (hasPrefix "did" $meant) -}}
{{- $complaints = append $complaints (printf "unknown value %s: %s" .path $meant) -}}
{{- end -}}
{{- end -}}
{{- with $complaints -}}{{- fail (join "\n" .) -}}{{- end -}}
{{- end }}

{{/* The suggestion for a key that does not exist. Arguments: unknown, paths. */}}
{{- define "gpu-operator.meant" -}}
{{- $key := .unknown.key -}}
{{- $block := .unknown.block -}}
{{- $limit := max 2 (div (len $key) 3) -}}
{{- $nearest := "" -}}{{- $least := add $limit 1 -}}
{{- range .unknown.siblings -}}
{{- if le (max (sub (len .) (len $key)) (sub (len $key) (len .))) $limit -}}
{{- $distance := include "gpu-operator.distance" (list $key .) | int64 -}}
{{- if lt $distance $least }}{{ $nearest = . }}{{ $least = $distance }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $elsewhere := list -}}
{{- range .paths -}}
{{- if eq (lower (last (splitList "." .))) (lower $key) }}{{ $elsewhere = append $elsewhere . }}{{ end -}}
{{- end -}}
{{- if $nearest -}}
did you mean {{ ternary $nearest (printf "%s.%s" $block $nearest) (eq $block "") }}?
{{- else if and $elsewhere (le (len $elsewhere) 3) -}}
did you mean {{ join " or " $elsewhere }}?
{{- else -}}
{{ ternary "the chart" $block (eq $block "") }} has {{ join ", " .unknown.siblings }}
{{- end -}}
{{- end }}

{{/* The edit distance of two names, ignoring case. Argument: a list of the two. */}}
{{- define "gpu-operator.distance" -}}
{{- $a := lower (index . 0) -}}{{- $b := lower (index . 1) -}}
{{- $row := untilStep 0 (int (add1 (len $b))) 1 -}}
{{- range $i := until (len $a) -}}
{{- $next := list (add1 $i) -}}
{{- range $j := until (len $b) -}}
{{- $cost := ternary 0 1 (eq (substr $i (int (add1 $i)) $a) (substr $j (int (add1 $j)) $b)) -}}
{{- $next = append $next (min (add1 (index $row (int (add1 $j)))) (add1 (last $next)) (add (index $row $j) $cost)) -}}
{{- end -}}
{{- $row = $next -}}
{{- end -}}
{{- last $row -}}
{{- end }}
