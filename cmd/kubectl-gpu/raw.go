package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// stream gets a path of the API server with kubectl, and hands its answer to read while it arrives: kubectl get itself
// would hold and print all of a large list.
func (k kubectl) stream(ctx context.Context, path string, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := append(k.clusterArgs("get"), "--raw", path)
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed := read(out)
	if failed != nil {
		cancel()
	}
	if err := cmd.Wait(); err != nil && (failed == nil || errOut.Len() > 0) {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	if failed != nil {
		return fmt.Errorf("reading what kubectl get --raw %s printed: %w", path, failed)
	}
	return nil
}

// decodeList decodes a list without holding it.
func decodeList[T any](in *json.Decoder, each func(*T)) (version string, err error) {
	if err := expect(in, '{'); err != nil {
		return "", err
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case "metadata":
			list := metav1.ListMeta{}
			err = in.Decode(&list)
			version = list.ResourceVersion
		case "items":
			err = decodeItems(in, each)
		default:
			err = in.Decode(new(json.RawMessage))
		}
		if err != nil {
			return "", err
		}
	}
	return version, expect(in, '}')
}

// decodeItems decodes the items of a list. null is an empty list: so the API server encodes one of metadata only.
func decodeItems[T any](in *json.Decoder, each func(*T)) error {
	token, err := in.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('[') {
		return fmt.Errorf("found %v instead of a list of items", token)
	}
	for in.More() {
		item := new(T)
		if err := in.Decode(item); err != nil {
			return err
		}
		each(item)
	}
	return expect(in, ']')
}

func expect(in *json.Decoder, delimiter json.Delim) error {
	token, err := in.Token()
	if err != nil {
		return err
	}
	if token != delimiter {
		return fmt.Errorf("found %v instead of %v", token, delimiter)
	}
	return nil
}

// watchRaw hands each object that changes after a resource version to each, until the API server ends the watch: after
// some time, or because it no longer has the version. Then the list must be read again.
func watchRaw[T any](
	ctx context.Context, k kubectl, path string, query url.Values, version string, each func(deleted bool, object *T),
) error {
	all := url.Values{"watch": {"true"}, "resourceVersion": {version}}
	for key, values := range query {
		all[key] = values
	}
	err := k.stream(ctx, path+"?"+all.Encode(), func(in io.Reader) error {
		return decodeEvents(json.NewDecoder(in), each)
	})
	if answered(err, "Expired") {
		return nil
	}
	return err
}

func decodeEvents[T any](in *json.Decoder, each func(deleted bool, object *T)) error {
	for {
		event := struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}{}
		err := in.Decode(&event)
		if errors.Is(err, io.EOF) || event.Type == string(apiwatch.Error) {
			return nil
		}
		if err != nil {
			return err
		}
		object := new(T)
		if err := json.Unmarshal(event.Object, object); err != nil {
			return err
		}
		each(event.Type == string(apiwatch.Deleted), object)
	}
}
