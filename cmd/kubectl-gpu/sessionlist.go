package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fromCache asks for a list as the API server has it in its cache; other parameters are added.
func fromCache(query url.Values) string {
	all := url.Values{"resourceVersion": {"0"}}
	maps.Copy(all, query)
	return "?" + all.Encode()
}

// listJSON hands each object of a list to each, one after the other, and returns the resource version of the list.
func listJSON[T any](
	ctx context.Context, s *session, path string, query url.Values, accept string, each func(*T),
) (string, error) {
	response, err := s.do(ctx, path+fromCache(query), accept)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	version, err := decodeList(json.NewDecoder(response.Body), each)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return version, nil
}

// message is an object that can be decoded from protobuf.
type message[T any] interface {
	*T
	Unmarshal(data []byte) error
}

// listProtobuf is listJSON for the kinds of Kubernetes itself, which takes a fraction of the time.
func listProtobuf[T any, P message[T]](
	ctx context.Context, s *session, path string, query url.Values, each func(*T),
) (string, error) {
	response, err := s.do(ctx, path+fromCache(query), typeProtobuf+","+typeJSON)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	version := ""
	if strings.HasPrefix(response.Header.Get("Content-Type"), typeProtobuf) {
		version, err = decodeProtobuf[T, P](bufio.NewReaderSize(response.Body, bufferSize), each)
	} else {
		version, err = decodeList(json.NewDecoder(response.Body), each)
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return version, nil
}

const (
	// protobufMagic begins each message of the API server, see k8s.io/apimachinery/pkg/runtime/serializer/protobuf.
	protobufMagic = "k8s\x00"
	// rawField is the number of runtime.Unknown.Raw, the message of the object. metadataField and itemsField are those of
	// each list.
	rawField      = 2
	metadataField = 1
	itemsField    = 2
	// maxField bounds the size of a field, in bytes: a larger one is a sign of a broken stream.
	maxField   = 64 << 20
	bufferSize = 64 << 10
)

var (
	errNoProtobuf = errors.New("the answer is no protobuf of Kubernetes")
	errTooLarge   = errors.New("a field is too large")
)

// decodeProtobuf decodes a list without holding it.
func decodeProtobuf[T any, P message[T]](in *bufio.Reader, each func(*T)) (version string, err error) {
	magic := make([]byte, len(protobufMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != protobufMagic {
		return "", errNoProtobuf
	}
	var buffer []byte
	for {
		field, size, err := nextField(in)
		if err != nil {
			return "", errNoProtobuf
		}
		if field == rawField {
			return decodeItemsProtobuf[T, P](in, size, each)
		}
		if _, err := take(in, &buffer, size); err != nil {
			return "", err
		}
	}
}

// decodeItemsProtobuf decodes the message of a list, of a size.
func decodeItemsProtobuf[T any, P message[T]](
	from *bufio.Reader, size uint64, each func(*T),
) (version string, err error) {
	limited := &io.LimitedReader{R: from, N: int64(size)} //nolint:gosec // The length of an answer.
	in := bufio.NewReaderSize(limited, bufferSize)
	var buffer []byte
	for {
		field, size, err := nextField(in)
		if errors.Is(err, io.EOF) && limited.N == 0 {
			return version, nil
		}
		if err != nil {
			return "", fmt.Errorf("the answer is cut: %w", err)
		}
		content, err := take(in, &buffer, size)
		if err != nil {
			return "", err
		}
		switch field {
		case metadataField:
			list := metav1.ListMeta{}
			if err := list.Unmarshal(content); err != nil {
				return "", err
			}
			version = list.ResourceVersion
		case itemsField:
			item := P(new(T))
			if err := item.Unmarshal(content); err != nil {
				return "", err
			}
			each((*T)(item))
		}
	}
}

// nextField returns the number and the size of the next field. All fields of envelopes and lists have a length.
func nextField(in *bufio.Reader) (field, size uint64, err error) {
	tag, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, 0, err
	}
	const hasLength = 2
	if tag&7 != hasLength {
		return 0, 0, errNoProtobuf
	}
	if size, err = binary.ReadUvarint(in); err != nil {
		return 0, 0, io.ErrUnexpectedEOF
	}
	return tag >> 3, size, nil
}

// take reads bytes into the buffer, which is reused.
func take(in io.Reader, buffer *[]byte, size uint64) ([]byte, error) {
	if size > maxField {
		return nil, errTooLarge
	}
	if uint64(cap(*buffer)) < size {
		*buffer = make([]byte, size)
	}
	content := (*buffer)[:size]
	if _, err := io.ReadFull(in, content); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return content, nil
}

// unwrap returns the message of an object from its envelope.
func unwrap(text []byte) ([]byte, error) {
	in := bufio.NewReader(strings.NewReader(strings.TrimPrefix(string(text), protobufMagic)))
	for {
		field, size, err := nextField(in)
		if err != nil {
			return nil, errNoProtobuf
		}
		var content []byte
		if _, err := take(in, &content, size); err != nil {
			return nil, err
		}
		if field == rawField {
			return content[:size], nil
		}
	}
}
