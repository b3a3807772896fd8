{{/*
The values with the types of the policy's fields, as JSON: a whole number becomes a string if the field is one.
Keys that do not exist are collected in state.unknown, each with its block, and values that a rule of the definition
refuses in state.invalid, if state.patterns has the rules.
Arguments: value, node (of files/keys.json), path, state, and policy to leave out the chart's own keys.
*/}}
{{- define "gpu-operator.typed" -}}
{{- $value := .value -}}{{- $node := .node -}}{{- $path := .path -}}{{- $state := .state -}}{{- $policy := .policy -}}
{{- include "gpu-operator.match" . -}}
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

{{/* Collects a value that a rule of the definition refuses in state.invalid. Arguments: as for typed. */}}
{{- define "gpu-operator.match" -}}
{{- $state := .state -}}{{- $path := .path -}}
{{- if hasKey $state "patterns" -}}
{{- if and .node.image (kindIs "map" .value) -}}
{{- $block := trimSuffix ".image" $path -}}
{{- $_ := set $state "invalid" (append $state.invalid (printf "%s is a map: set %s.repository, %s.image and %s.version, each to a text" $path $block $block $block)) -}}
{{- else if and .node.matchKeys (kindIs "map" .value) -}}
{{- $message := .node.matchKeys -}}
{{- range $key := keys .value | sortAlpha -}}
{{- if not (regexMatch (get $state.patterns $message) $key) -}}
{{- $_ := set $state "invalid" (append $state.invalid (printf "%s has the key %q: %s" $path $key $message)) -}}
{{- end -}}
{{- end -}}
{{- else if and .node.match (not (or (kindIs "invalid" .value) (kindIs "map" .value) (kindIs "slice" .value))) -}}
{{- $text := include "gpu-operator.text" .value -}}
{{- if not (regexMatch (get $state.patterns .node.match) $text) -}}
{{- $_ := set $state "invalid" (append $state.invalid (printf "%s is %q: %s" $path $text .node.match)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The values that do not exist, as JSON: refused are those that resemble a key beside them, and so are probably
misspelt; noted are all others, which values for another release of NVIDIA's chart may have. Refused are also values that the definition refuses.
Argument: root. */}}
{{- define "gpu-operator.unknown" -}}
{{- $known := .Files.Get "files/keys.json" | fromJson -}}
{{- $state := dict "unknown" list "invalid" list "patterns" $known.patterns -}}
{{- $_ := include "gpu-operator.typed" (dict "value" .Values "node" $known.keys "path" "" "state" $state "policy" false) -}}
{{- $refused := $state.invalid -}}{{- $noted := list -}}
{{- range $state.unknown -}}
{{- $nearest := include "gpu-operator.nearest" . -}}
{{- if $nearest -}}
{{- $refused = append $refused (printf "unknown value %s: did you mean %s?" .path $nearest) -}}
{{/* A parent chart shares its block global with all charts: keys that resemble none of ours are not for us. */}}
{{- else if ne .block "global" -}}
{{- $noted = append $noted (printf "%s: unknown%s" .path (include "gpu-operator.elsewhere" (dict "unknown" . "paths" $known.paths))) -}}
{{- end -}}
{{- end -}}
{{- dict "refused" $refused "noted" $noted | toJson -}}
{{- end }}

{{/* Fails if a value is wrong, or probably misspelt. Argument: root. */}}
{{- define "gpu-operator.refuseWrong" -}}
{{- with (include "gpu-operator.unknown" . | fromJson).refused -}}{{- fail (join "\n" .) -}}{{- end -}}
{{- include "gpu-operator.checkOperator" . -}}
{{- end }}

{{/* The path of the key beside an unknown one that it resembles most; empty if there is none. Argument: unknown. */}}
{{- define "gpu-operator.nearest" -}}
{{- $key := .key -}}
{{- $limit := max 2 (div (len $key) 3) -}}
{{- $nearest := "" -}}{{- $least := add $limit 1 -}}
{{- range .siblings -}}
{{- if le (max (sub (len .) (len $key)) (sub (len $key) (len .))) $limit -}}
{{- $distance := include "gpu-operator.distance" (list $key .) | int64 -}}
{{- if lt $distance $least }}{{ $nearest = . }}{{ $least = $distance }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if $nearest }}{{ ternary $nearest (printf "%s.%s" .block $nearest) (eq .block "") }}{{ end -}}
{{- end }}

{{/* Where keys with the name of an unknown one are. Arguments: unknown, paths. */}}
{{- define "gpu-operator.elsewhere" -}}
{{- $key := .unknown.key -}}
{{- $elsewhere := list -}}
{{- range .paths -}}
{{- if eq (lower (last (splitList "." .))) (lower $key) }}{{ $elsewhere = append $elsewhere . }}{{ end -}}
{{- end -}}
{{- if and $elsewhere (le (len $elsewhere) 3) }}; did you mean {{ join " or " $elsewhere }}?{{ end -}}
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
