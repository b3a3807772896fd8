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

// RedactObject removes credentials from an object in place: what others have written into annotations, the contents of
// ConfigMaps unless keepData, the values of variables and keys with names of credentials, and what has the form of one.
// The managed fields are dropped. An object of kind Secret loses all data; nobody should read one.
func (r *Redactor) RedactObject(object *unstructured.Unstructured, keepData bool) {
	unstructured.RemoveNestedField(object.Object, "metadata", "managedFields")
	kind := object.GetKind()
	if kind == "Secret" || kind == "ConfigMap" && !keepData {
		for _, field := range []string{"data", "stringData", "binaryData"} {
			r.withhold(object.Object, field, "content of a "+kind)
		}
	}
	r.redactValue(object.Object)
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
		_ = r.RedactText(text)
		if isCredentialName(key) {
			r.remember(text)
		}
		values[key] = fmt.Sprintf("[redacted: %d bytes]", len(text))
	}
}

// redactValue removes credentials from a value of an object, in place if it is a map or a list.
func (r *Redactor) redactValue(value any) any {
	switch typed := value.(type) {
	case string:
		return r.RedactText(typed)
	case map[string]any:
		r.redactFields(typed)
	case []any:
		r.redactList(typed, nil, "")
	}
	return value
}

func (r *Redactor) redactFields(fields map[string]any) {
	name, isName := fields["name"].(string)
	text, hasValue := fields["value"].(string)
	if isName && hasValue && isSecret(text) {
		switch {
		case isCredentialName(name):
			fields["value"] = r.remove("value of a variable", text)
		case isKeyName(name):
			fields["value"] = r.remove(doubtfulKey, text)
		}
	}
	// What flags of arguments mean depends on the program, which the command or the image names.
	args, hasArgs := fields["args"].([]any)
	if hasArgs {
		command, _ := fields["command"].([]any)
		image, _ := fields["image"].(string)
		r.redactList(args, command, image)
	}
	for key, value := range fields {
		if key != "args" || !hasArgs {
			fields[key] = r.redactField(key, value)
		}
	}
}

// redactField returns the value of a key without credentials.
func (r *Redactor) redactField(key string, value any) any {
	isCredential := isCredentialName(key) && !isReference(key)
	switch typed := value.(type) {
	case string:
		return r.redactTextField(key, typed, isCredential)
	case map[string]any:
		switch {
		case key == "annotations":
			r.redactAnnotations(typed)
			return value
		case isCredential:
			r.redactBelow(typed)
		}
	}
	return r.redactValue(value)
}

// redactTextField is redactField for a text.
func (r *Redactor) redactTextField(key, text string, isCredential bool) string {
	switch {
	case key == "caBundle": // Public, and long.
		return fmt.Sprintf("[left out: %d bytes]", len(text))
	case isCredential && isSecret(text):
		return r.remove("value of a credential's name", text)
	case isKeyName(key) && isSecret(text):
		return r.remove(doubtfulKey, text)
	}
	return r.RedactText(text)
}

// isSecret reports whether the value of a credential's name may reveal something.
func isSecret(text string) bool {
	return text != "" && !harmless.MatchString(text)
}

// redactBelow removes the value from the object of a key that names a credential.
func (r *Redactor) redactBelow(fields map[string]any) {
	for key, value := range fields {
		if text, isText := value.(string); isText && isValueKey(key) && isSecret(text) {
			fields[key] = r.remove("value of a credential's name", text)
		}
	}
}

// isReference reports whether a key names an object with a credential, and not the credential.
func isReference(key string) bool {
	return strings.HasSuffix(key, "Name") || strings.HasSuffix(key, "Ref") || strings.HasSuffix(key, "Path")
}

// redactAnnotations removes the values of those of others, which may be anything.
func (r *Redactor) redactAnnotations(all map[string]any) {
	for key, value := range all {
		text, isText := value.(string)
		switch {
		case !isText:
		case key == lastApplied, namesCredential(key), !isKept(key):
			r.Count["annotation"]++
			_ = r.RedactText(text)
			if namesCredential(key) {
				r.remember(text)
			}
			all[key] = fmt.Sprintf("[redacted: %d bytes]", len(text))
		default:
			all[key] = r.RedactText(text)
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

// redactList removes credentials from the elements; of arguments also the one after a flag for a credential. The
// command of a container's arguments is before them, and its image may be named after the program.
func (r *Redactor) redactList(elements, command []any, image string) {
	for i, element := range elements {
		text, isText := element.(string)
		if !isText {
			elements[i] = r.redactValue(element)
			continue
		}
		before := slices.Concat(command, elements[:i])
		if what := argumentOf(before, image, text); what != "" && !harmless.MatchString(text) {
			elements[i] = r.remove(what, text)
			continue
		}
		elements[i] = r.RedactText(r.removeAttached(commandLine(before, image), text))
	}
}

// argumentOf returns what an argument is that is removed because of those before it; empty if it stays.
func argumentOf(before []any, image, text string) string {
	if len(before) == 0 {
		return ""
	}
	last := len(before) - 1
	flag, _ := before[last].(string)
	name := strings.TrimLeft(flag, "-")
	switch {
	case name == flag:
		return ""
	case !strings.Contains(name, "=") && isCredentialName(name),
		isProgramFlag(commandLine(before[:last], image), flag, text):
		return "argument"
	case flag == "-p" && !isOtherArgument(before[:last], text):
		return doubtful
	}
	return ""
}

// commandLine returns the image and the arguments as one text.
func commandLine(arguments []any, image string) string {
	return image + " " + fmt.Sprintln(arguments...)
}

// isOtherArgument reports whether a value after -p is no password, by the arguments before it.
func isOtherArgument(before []any, value string) bool {
	return ports(value) || isOtherCommand(func(yield func(string) bool) {
		for _, argument := range before {
			if !yield(fmt.Sprint(argument)) {
				return
			}
		}
	})
}
