package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// digestsCommand reads names of images, one a line, and asks their registries for the digests. It writes the name and
// the digest of each image to out, and a line to problems for each that its registry does not have or does not answer
// for.
func digestsCommand(ctx context.Context, in io.Reader, out, problems io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		image := strings.TrimSpace(lines.Text())
		if image == "" {
			continue
		}
		reference, err := name.NewTag(image, name.StrictValidation)
		if err != nil {
			return fmt.Errorf("%q is no name of an image with a tag: %w", image, err)
		}
		found, err := remote.Head(reference, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
		if err != nil {
			fmt.Fprintf(problems, "%s has no digest: %v\n", image, err)
			continue
		}
		fmt.Fprintln(out, image, found.Digest)
	}
	return lines.Err()
}
