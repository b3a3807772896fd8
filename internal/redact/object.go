package redact

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// lastApplied has a copy of the object as its author wrote it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// keptAnnotations are the suffixes of domains whose annotations are kept: those of Kubernetes, of this operator and of
// what it works with.
var keptAnnotations = []string{
	"kubernetes.io", "k8s.io", "nvidia.com", "openshift.io", "helm.sh", "projectcalico.org", "cni.dev",
}

// Object removes credentials from an object in place: what others have written into annotations, the contents of
// ConfigMaps unless keepData, the values of variables and keys with names of credentials, and what has the form of one.
// The managed fields are dropped. An object of kind Secret loses all data; nobody should read one.
func (r *Redactor) Object(object *unstructured.Unstructured, keepData bool) {
	unstructured.RemoveNestedField(object.Object, "metadata", "managedFields")
	kind := object.GetKind()
	if kind == "Secret" || kind == "ConfigMap" && !keepData {
		for _, field := range []string{"data", "stringData", "binaryData"} {
			r.withhold(object.Object, field, "content of a "+kind)
		}
	}
	r.value(object.Object)
}

// FinishObject is Finish for the texts of an object, in place.
func (r *Redactor) FinishObject(value any) any {
	switch typed := value.(type) {
	case string:
		return r.Finish(typed)
	case map[string]any:
		for key := range typed {
			typed[key] = r.FinishObject(typed[key])
		}
	case []any:
		for i := range typed {
			typed[i] = r.FinishObject(typed[i])
		}
	}
	return value
}

// withhold replaces all values of a map in a field.
func (r *Redactor) withhold(fields map[string]any, field, what string) {
	values, isMap := fields[field].(map[string]any)
	if !isMap {
		return
	}
	for key, value := range values {
		text := fmt.Sprint(value)
		r.Count[what]++
		// Its lines may be anything, so that only what looks like a credential is searched elsewhere.
		_ = r.Text(text)
		if isCredentialName(key) {
			r.remember(text)
		}
		values[key] = fmt.Sprintf("[redacted: %d bytes]", len(text))
	}
}

// value removes credentials from a value of an object, in place if it is a map or a list.
func (r *Redactor) value(value any) any {
	switch typed := value.(type) {
	case string:
		return r.Text(typed)
	case map[string]any:
		r.fields(typed)
	case []any:
		r.list(typed)
	}
	return value
}

func (r *Redactor) fields(fields map[string]any) {
	name, isName := fields["name"].(string)
	text, hasValue := fields["value"].(string)
	if isName && hasValue && isCredentialName(name) && text != "" && !harmless.MatchString(text) {
		fields["value"] = r.remove("value of a variable", text)
	}
	for key, value := range fields {
		fields[key] = r.field(key, value)
	}
}

// field returns the value of a key without credentials.
func (r *Redactor) field(key string, value any) any {
	text, isText := value.(string)
	annotations, isMap := value.(map[string]any)
	switch {
	case key == "annotations" && isMap:
		r.annotations(annotations)
		return value
	case isText && key == "caBundle": // Public, and long.
		return fmt.Sprintf("[left out: %d bytes]", len(text))
	case isText && isCredentialName(key) && !isReference(key) && text != "" && !harmless.MatchString(text):
		return r.remove("value of a credential's name", text)
	default:
		return r.value(value)
	}
}

// isReference reports whether a key names an object with a credential, and not the credential.
func isReference(key string) bool {
	return strings.HasSuffix(key, "Name") || strings.HasSuffix(key, "Ref") || strings.HasSuffix(key, "Path")
}

// annotations removes the values of those of others, which may be anything.
func (r *Redactor) annotations(all map[string]any) {
	for key, value := range all {
		text, isText := value.(string)
		switch {
		case !isText:
		case key == lastApplied, namesCredential(key), !isKept(key):
			r.Count["annotation"]++
			_ = r.Text(text)
			if namesCredential(key) {
				r.remember(text)
			}
			all[key] = fmt.Sprintf("[redacted: %d bytes]", len(text))
		default:
			all[key] = r.Text(text)
		}
	}
}

// namesCredential reports whether an annotation is named as a credential, whatever its domain.
func namesCredential(key string) bool {
	return isCredentialName(key[strings.LastIndex(key, "/")+1:])
}

// isKept reports whether the annotation is of a domain that is kept.
func isKept(key string) bool {
	domain, _, hasDomain := strings.Cut(key, "/")
	return hasDomain && slices.ContainsFunc(keptAnnotations, func(kept string) bool {
		return domain == kept || strings.HasSuffix(domain, "."+kept)
	})
}

// list removes credentials from the elements; of arguments also the one after a flag with the name of a credential.
func (r *Redactor) list(elements []any) {
	for i, element := range elements {
		text, isText := element.(string)
		if !isText {
			elements[i] = r.value(element)
			continue
		}
		if i > 0 {
			flag, _ := elements[i-1].(string)
			name := strings.TrimLeft(flag, "-")
			if name != flag && !strings.Contains(name, "=") && isCredentialName(name) && !harmless.MatchString(text) {
				elements[i] = r.remove("argument", text)
				continue
			}
			if flag == "-p" && !isOtherArgument(elements[:i-1], text) && !harmless.MatchString(text) {
				r.Count[doubtful]++
				elements[i] = Mark
				continue
			}
		}
		elements[i] = r.Text(text)
	}
}

// isOtherArgument reports whether a value after -p is no password, by the arguments before it.
func isOtherArgument(before []any, value string) bool {
	var words []string
	for _, argument := range before {
		words = append(words, fmt.Sprint(argument))
	}
	return ports(value) || isOtherCommand(words)
}
