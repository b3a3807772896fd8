package image

import "strings"

const (
	// dockerHub is the registry of references that name none. Its own images are below official.
	dockerHub = "docker.io"
	official  = "library/"
	localhost = "localhost"
)

// Mirror is the reference as a mirror has it: the registry stands in the place of the reference's host,
// and what follows, tag and digest included, stays. A reference without a host is one of Docker Hub, by
// the rules of container runtimes, so ubuntu:24.04 becomes REGISTRY/library/ubuntu:24.04. A reference
// that begins with the registry is left as it is, and so is every one where the registry is empty. The
// registry is a host, with a port or a path if it has them; slashes at its end do not count.
func Mirror(registry, reference string) string {
	registry = strings.TrimRight(registry, "/")
	if registry == "" || reference == "" || strings.HasPrefix(reference, registry+"/") {
		return reference
	}
	host, rest := splitHost(reference)
	if host == dockerHub && !strings.Contains(rest, "/") {
		rest = official + rest
	}
	return registry + "/" + rest
}

// Unmirror undoes Mirror for a reference that has the repository of original, in any version, behind the registry: it
// gets the host of original again. Every other reference is left as it is: nothing shows which host a mirror has
// replaced, or whether it has replaced one.
func Unmirror(registry, reference, original string) string {
	registry = strings.TrimRight(registry, "/")
	rest, behind := strings.CutPrefix(reference, registry+"/")
	host, path := splitHost(original)
	if registry == "" || !behind || withoutVersion(rest) != withoutVersion(path) {
		return reference
	}
	return host + "/" + rest
}

// withoutVersion returns a reference without its tag and digest.
func withoutVersion(reference string) string {
	repository, name, _ := split(reference)
	return repository + "/" + name
}

// splitHost cuts the registry's host off a reference. The first part is a host only if it cannot be a
// part of a name: with a dot, a port or a capital letter, or localhost.
func splitHost(reference string) (host, rest string) {
	first, rest, found := strings.Cut(reference, "/")
	isHost := strings.ContainsAny(first, ".:") || first == localhost || strings.ToLower(first) != first
	switch {
	case !found || !isHost:
		return dockerHub, reference
	case first == "index."+dockerHub:
		return dockerHub, rest
	}
	return first, rest
}
