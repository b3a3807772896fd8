package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"reflect"
	"strconv"
	"text/template"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/assets"
)

// functions are the template functions. quote renders any text as one YAML string: "1e3" stays a string, and a line
// break in a field of the spec cannot inject YAML. json does the same for maps, lists and structs, as JSON is YAML.
var functions = template.FuncMap{
	"quote": func(value any) string { return strconv.Quote(fmt.Sprint(value)) },
	"json": func(value any) (string, error) {
		text, err := json.Marshal(value)
		return string(text), err
	},
}

// templates are all assets by path. They are embedded in the program and parsed once.
var templates = parseAssets()

func parseAssets() map[string]*template.Template {
	parsed := map[string]*template.Template{}
	for _, pattern := range assets.Patterns() {
		files, err := fs.Glob(assets.FS, pattern)
		if err != nil {
			panic(err) // The patterns are constant and valid.
		}
		for _, file := range files {
			text, err := assets.FS.ReadFile(file)
			if err != nil {
				panic(err) // The file is embedded.
			}
			parsed[file] = template.Must(template.New(file).Option("missingkey=error").Funcs(functions).Parse(string(text)))
		}
	}
	return parsed
}

// decoded are the files that were decoded last.
var decoded decodedFiles

// DecodeFolder executes the templates of an operand's folder in the order of their names and decodes every document
// strictly: an unknown field is an error.
func DecodeFolder(folder string, values any) ([]Object, error) {
	files, err := fs.Glob(assets.FS, path.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing assets of %s: %w", folder, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there are no assets in folder %s", folder)
	}
	var objects []Object
	for _, file := range files {
		text, err := execute(file, values)
		if err != nil {
			return nil, err
		}
		found, err := decoded.objects(text)
		if err != nil {
			return nil, fmt.Errorf("asset %s: %w", file, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// Exists reports whether there is an asset with that path.
func Exists(file string) bool { return templates[file] != nil }

// execute returns the text of a template with these values. A missing key is an error.
func execute(file string, values any) ([]byte, error) {
	parsed, exists := templates[file]
	if !exists {
		return nil, fmt.Errorf("there is no asset %s", file)
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, values); err != nil {
		return nil, fmt.Errorf("asset %s: %w", file, err)
	}
	return text.Bytes(), nil
}

func decodeDocuments(text []byte) ([]Object, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var objects []Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object, err := decode(document)
		if err != nil {
			return nil, err
		}
		if object != nil {
			objects = append(objects, object)
		}
	}
}

func decode(document []byte) (Object, error) {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return nil, err
	}
	if kind.Kind == "" {
		return nil, nil //nolint:nilnil // The document has only comments.
	}
	want := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	for _, supported := range allKinds() {
		if supported.GetObjectKind().GroupVersionKind() == want {
			object, isObject := reflect.New(reflect.TypeOf(supported).Elem()).Interface().(Object)
			if !isObject {
				return nil, fmt.Errorf("%s is not an API object", want)
			}
			return object, yaml.UnmarshalStrict(document, object)
		}
	}
	return nil, fmt.Errorf("kind %s is not supported in assets", want)
}
