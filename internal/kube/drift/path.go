package drift

import "strings"

// segment is one part of a path.
type segment struct {
	// text is its printed form, managed its key in managedFields; managed is empty for an element of a list without merge
	// keys.
	text, managed string
}

// Path leads from an object to one of its fields. An empty path is the object itself.
type Path []segment

func keySegment(key string) segment {
	if strings.ContainsAny(key, "./") {
		return segment{text: "[" + key + "]", managed: "f:" + key}
	}
	return segment{text: "." + key, managed: "f:" + key}
}

// String returns the path as text, such as spec.template.spec.containers[nvidia-driver-ctr].image.
func (p Path) String() string {
	var text strings.Builder
	for _, s := range p {
		text.WriteString(s.text)
	}
	return strings.TrimPrefix(text.String(), ".")
}

// pointer returns the path as a JSON pointer (RFC 6901).
func (p Path) pointer() string {
	var text strings.Builder
	for _, s := range p {
		text.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(strings.TrimPrefix(s.managed, "f:")))
	}
	return text.String()
}
