//go:build linux

package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Image is a container image with one layer.
type Image struct {
	// Names are the references by which it can be used in pods, with registry and tag or digest.
	Names []string
	// Files are paths on this computer by their places in the image, without the leading slash. All are programs. What is
	// one file here is one file there.
	Files map[string]string
	// Links are targets of symbolic links by the links' places in the image.
	Links map[string]string
	// Entrypoint is the default command of a container.
	Entrypoint []string
	// Env are its variables, as NAME=value.
	Env []string
	// User is that of its processes, as UID:GID; root if empty.
	User string
}

// descriptor refers to a blob, see the OCI image specification.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Archive returns the image as a tar file in the OCI layout.
func (i Image) Archive() ([]byte, error) {
	layer, err := i.layer()
	if err != nil {
		return nil, fmt.Errorf("make image %s: %w", strings.Join(i.Names, ", "), err)
	}
	const prefix = "application/vnd.oci.image."
	blobs := map[string][]byte{}
	layerRef := put(blobs, prefix+"layer.v1.tar", layer)
	configRef, err := putJSON(blobs, prefix+"config.v1+json", map[string]any{
		"os": runtime.GOOS, "architecture": runtime.GOARCH,
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Env": i.Env, "User": i.User},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerRef.Digest}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := putJSON(blobs, prefix+"manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": prefix + "manifest.v1+json", "config": configRef, "layers": []descriptor{layerRef},
	})
	if err != nil {
		return nil, err
	}
	var named []descriptor
	for _, name := range i.Names {
		manifest.Annotations = map[string]string{"io.containerd.image.name": name}
		named = append(named, manifest)
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": named})
	if err != nil {
		return nil, err
	}
	blobs["index.json"], blobs["oci-layout"] = index, []byte(`{"imageLayoutVersion": "1.0.0"}`)
	return pack(blobs, 0o644, nil, nil)
}

func (i Image) layer() ([]byte, error) {
	files, same := map[string][]byte{}, map[string]string{}
	// The places of the files, and what is known of these.
	var places []string
	var known []fs.FileInfo
	for _, place := range slices.Sorted(maps.Keys(i.Files)) {
		info, err := os.Stat(i.Files[place])
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(known, func(other fs.FileInfo) bool { return os.SameFile(info, other) })
		if at >= 0 {
			same[place] = places[at]
			continue
		}
		if files[place], err = os.ReadFile(i.Files[place]); err != nil {
			return nil, err
		}
		places, known = append(places, place), append(known, info)
	}
	return pack(files, 0o755, same, i.Links)
}

// put adds a blob and returns its descriptor.
func put(blobs map[string][]byte, mediaType string, content []byte) descriptor {
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	blobs["blobs/sha256/"+digest] = content
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

func putJSON(blobs map[string][]byte, mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, fmt.Errorf("encode %s: %w", mediaType, err)
	}
	return put(blobs, mediaType, content), nil
}

// pack creates a tar file of files, hard links to these and symbolic links, with the folders that they are in.
func pack(files map[string][]byte, mode int64, same, links map[string]string) ([]byte, error) {
	var packed bytes.Buffer
	writer := tar.NewWriter(&packed)
	made := map[string]bool{".": true}
	for _, place := range slices.Sorted(maps.Keys(files)) {
		if err := packFolders(writer, path.Dir(place), made); err != nil {
			return nil, err
		}
		content := files[place]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: place, Mode: mode, Size: int64(len(content))}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(content); err != nil {
			return nil, err
		}
	}
	for _, kind := range []struct {
		flag  byte
		mode  int64
		links map[string]string
	}{{tar.TypeLink, mode, same}, {tar.TypeSymlink, int64(fs.ModePerm), links}} {
		for _, place := range slices.Sorted(maps.Keys(kind.links)) {
			if err := packFolders(writer, path.Dir(place), made); err != nil {
				return nil, err
			}
			header := &tar.Header{Typeflag: kind.flag, Name: place, Linkname: kind.links[place], Mode: kind.mode}
			if err := writer.WriteHeader(header); err != nil {
				return nil, err
			}
		}
	}
	// It ends the archive.
	err := writer.Close()
	return packed.Bytes(), err
}

func packFolders(writer *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	made[dir] = true
	if err := packFolders(writer, path.Dir(dir), made); err != nil {
		return err
	}
	return writer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
}
