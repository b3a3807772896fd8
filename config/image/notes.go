package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// notesFile has the notes of a release.
const notesFile = "RELEASE_NOTES.md"

// imagesPage is the page of the repository with the default images, as a table.
const imagesPage = "docs/images.md"

// notes writes what a release changes: its section of the changelog, and the default images that differ from those of
// the release before.
func (r *releaser) notes(ctx context.Context) error {
	changelog, err := os.ReadFile(filepath.Join(r.root, "docs/CHANGELOG.md"))
	if err != nil {
		return fmt.Errorf("reading the changelog: %w", err)
	}
	page, err := os.ReadFile(filepath.Join(r.root, imagesPage))
	if err != nil {
		return fmt.Errorf("reading the default images: %w", err)
	}
	before, err := r.imagesBefore(ctx)
	if err != nil {
		return err
	}
	text := section(string(changelog), r.chartVersion()) + "\n" +
		imageNotes(before, defaultImages(string(page)), r.replaces)
	if err := os.WriteFile(filepath.Join(r.out, notesFile), []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the notes: %w", err)
	}
	return nil
}

// imagesBefore returns the default images of the release before; none without one, or if it had no page of them.
func (r *releaser) imagesBefore(ctx context.Context) ([]defaultImage, error) {
	if r.replaces == "" {
		return nil, nil
	}
	git := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = r.root
		return cmd.Output()
	}
	if _, err := git("rev-parse", "--verify", "--quiet", r.replaces+"^{commit}"); err != nil {
		return nil, fmt.Errorf("reading the default images of %s: no such commit: fetch the tag", r.replaces)
	}
	page, err := git("show", r.replaces+":"+imagesPage)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the default images of %s: %w", r.replaces, err)
	}
	return defaultImages(string(page)), nil
}

// section returns the section of a version of the changelog, or where to read on.
func section(changelog, version string) string {
	_, found, exists := strings.Cut(changelog, "\n## ["+version+"]")
	if !exists {
		return "See docs/CHANGELOG.md.\n"
	}
	_, found, _ = strings.Cut(found, "\n")
	found, _, _ = strings.Cut(found, "\n## [")
	return strings.TrimSpace(found) + "\n"
}

// defaultImage is an image of the page.
type defaultImage struct{ name, reference string }

var imageRow = regexp.MustCompile("(?m)^\\| ([a-z0-9-]+) \\| `([^`]+)` \\|")

// defaultImages returns the images of the page, in order.
func defaultImages(page string) []defaultImage {
	var found []defaultImage
	for _, row := range imageRow.FindAllStringSubmatch(page, -1) {
		found = append(found, defaultImage{name: row[1], reference: row[2]})
	}
	return found
}

// imageNotes lists the default images, or those that differ from the release before, with what that means.
func imageNotes(before, now []defaultImage, replaces string) string {
	var text strings.Builder
	text.WriteString("### Default images\n\n")
	if len(before) == 0 {
		text.WriteString("| image | default |\n|---|---|\n")
		for _, image := range now {
			fmt.Fprintf(&text, "| %s | `%s` |\n", image.name, image.reference)
		}
		return text.String()
	}
	rows := changedImages(before, now)
	if rows == "" {
		fmt.Fprintf(&text, "The same as of %s.\n", replaces)
		return text.String()
	}
	text.WriteString("Where the policy names no image, the pods of these are replaced within `maxUnavailable`. Another " +
		"driver is a driver upgrade under `upgradePolicy`: without `autoUpgrade` it waits, and is reported. " +
		"`kubectl gpu plan` of this release shows both for a cluster before the upgrade.\n\n")
	fmt.Fprintf(&text, "| image | %s | now |\n|---|---|---|\n%s", replaces, rows)
	return text.String()
}

// changedImages returns the rows of the images that differ.
func changedImages(before, now []defaultImage) string {
	was, is := map[string]string{}, map[string]bool{}
	for _, image := range before {
		was[image.name] = image.reference
	}
	var rows strings.Builder
	for _, image := range now {
		is[image.name] = true
		switch old, existed := was[image.name]; {
		case !existed:
			fmt.Fprintf(&rows, "| %s | none | `%s` |\n", image.name, image.reference)
		case old != image.reference:
			fmt.Fprintf(&rows, "| %s | `%s` | `%s` |\n", image.name, old, image.reference)
		}
	}
	for _, image := range before {
		if !is[image.name] {
			fmt.Fprintf(&rows, "| %s | `%s` | none |\n", image.name, image.reference)
		}
	}
	return rows.String()
}
