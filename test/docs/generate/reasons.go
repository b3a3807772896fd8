package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	explained "github.com/clusterpolicy/gpu-operator/internal/status/reasons"
)

// constant is one of the strings that the API declares.
type constant struct {
	// Name in Go, the value, and the constant that it is defined by, if any.
	name, value, alias string
	// Type in Go; empty if it has none.
	kind string
	// Comment of the constant, and that of the group which declares it.
	comment, group string
}

// apiConstants returns the string constants of api/v1, in the order of the files and of their lines.
func apiConstants(repo string) ([]constant, error) {
	all, err := constantsIn(filepath.Join(repo, "api", "v1"))
	if err != nil {
		return nil, err
	}
	if all, err = resolve(all); err != nil {
		return nil, err
	}
	return withValues(all), nil
}

// constantsIn returns the string constants of the package in a directory, in the order of the files and of their lines.
func constantsIn(directory string) ([]constant, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []constant
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			if group, isGroup := declaration.(*ast.GenDecl); isGroup && group.Tok == token.CONST {
				all = append(all, constantsOf(group)...)
			}
		}
	}
	return all, nil
}

var goName = regexp.MustCompile(`\b(Reason|Condition|State|Operand|Stage)[A-Z]\w*`)

// withValues replaces in the comments the names of other constants with their values, which users meet.
func withValues(all []constant) []constant {
	values := map[string]string{}
	for _, c := range all {
		values[c.name] = c.value
	}
	for i, c := range all {
		rest, own := strings.CutPrefix(c.comment, c.name)
		rest = goName.ReplaceAllStringFunc(rest, func(name string) string { return cmp.Or(values[name], name) })
		if own {
			rest = c.name + rest
		}
		all[i].comment = rest
	}
	return all
}

// resolve gives the constants that are defined by another constant its value.
func resolve(all []constant) ([]constant, error) {
	for i, c := range all {
		if c.alias == "" {
			continue
		}
		other := slices.IndexFunc(all, func(other constant) bool { return other.name == c.alias })
		if other < 0 || all[other].value == "" {
			return nil, fmt.Errorf("%s is %s, whose value is not known", c.name, c.alias)
		}
		all[i].value = all[other].value
	}
	return all, nil
}

func constantsOf(group *ast.GenDecl) []constant {
	var all []constant
	for _, spec := range group.Specs {
		value, isValue := spec.(*ast.ValueSpec)
		if !isValue || len(value.Values) != 1 {
			continue
		}
		found := constant{name: value.Names[0].Name, group: words(group.Doc), comment: words(value.Doc, value.Comment)}
		if !group.Lparen.IsValid() {
			found.comment, found.group = found.group, ""
		}
		switch expression := value.Values[0].(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(expression.Value)
			if err != nil || expression.Kind != token.STRING {
				continue
			}
			found.value = text
		case *ast.Ident:
			found.alias = expression.Name
		default:
			continue
		}
		if named, isNamed := value.Type.(*ast.Ident); isNamed {
			found.kind = named.Name
		}
		all = append(all, found)
	}
	return all
}

// words are the comments in one line.
func words(comments ...*ast.CommentGroup) string {
	var all []string
	for _, c := range comments {
		if c != nil {
			all = append(all, strings.Fields(c.Text())...)
		}
	}
	return strings.Join(all, " ")
}

// meaning is the comment without the constant's name at its beginning.
func (c constant) meaning() string {
	text := strings.TrimPrefix(c.comment, c.name)
	for _, verb := range []string{": ", " means that ", " means ", " is "} {
		if rest, found := strings.CutPrefix(text, verb); found {
			text = rest
			break
		}
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// reason is a reason with the three parts of its comment.
type reason struct {
	constant
	means, cause, remedy string
}

// parseReason cuts a comment in the format "meaning. Cause: ... Remedy: ...".
func parseReason(c constant) (reason, error) {
	means, rest, hasCause := strings.Cut(c.meaning(), " Cause: ")
	cause, remedy, hasRemedy := strings.Cut(rest, " Remedy: ")
	if !hasCause || !hasRemedy || means == "" || cause == "" || remedy == "" {
		return reason{}, fmt.Errorf("the comment of %s needs a meaning, then Cause: and Remedy:, each a sentence", c.name)
	}
	return reason{constant: c, means: means, cause: cause, remedy: remedy}, nil
}

// reasons returns all reasons of the API, by their groups.
func reasons(repo string) ([]reason, error) {
	constants, err := apiConstants(repo)
	if err != nil {
		return nil, err
	}
	var all []reason
	for _, c := range constants {
		if !strings.HasPrefix(c.name, "Reason") {
			continue
		}
		parsed, err := parseReason(c)
		if err != nil {
			return nil, err
		}
		all = append(all, parsed)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("api/v1 has no reasons: the search has lost its way")
	}
	return all, nil
}

// reasonJSON has the texts of package internal/status/reasons.
func reasonJSON(repo string) (string, error) {
	all, err := reasons(repo)
	if err != nil {
		return "", err
	}
	texts := map[string]explained.Explanation{}
	for _, r := range all {
		texts[r.value] = explained.Explanation{Meaning: r.means, Cause: r.cause, Remedy: r.remedy}
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(texts)
	return out.String(), err
}

// reasonLink is a link from a page of docs/architecture to what troubleshooting.md has about a reason.
func reasonLink(reason string) string {
	return entryLink("../troubleshooting.md", reason)
}

// entryLink is a link to the entry of a reason on the page at this path.
func entryLink(page, reason string) string {
	return fmt.Sprintf("[`%s`](%s#%s)", reason, page, strings.ToLower(reason))
}

// reasonTable has a row for each reason, by its group.
func reasonTable(repo string) (string, error) {
	all, err := reasons(repo)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for len(all) > 0 {
		group := all[0].group
		var rows [][]string
		for len(all) > 0 && all[0].group == group {
			rows = append(rows, []string{reasonLink(all[0].value), all[0].means})
			all = all[1:]
		}
		if first, _, _ := strings.Cut(group, ". "); first != "" {
			fmt.Fprintf(&out, "%s:\n\n", strings.TrimSuffix(first, "."))
		}
		out.WriteString(table([]string{"reason", "meaning"}, rows) + "\n")
	}
	return out.String(), nil
}

// podReasonTable has a row for each reason of package explain why a pod does not get its GPU.
func podReasonTable(repo string) (string, error) {
	all, err := constantsIn(filepath.Join(repo, "internal", "cli", "explain"))
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, c := range all {
		if ast.IsExported(c.name) {
			rows = append(rows, []string{code(c.value), c.meaning()})
		}
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("internal/cli/explain has no reasons: the search has lost its way")
	}
	return table([]string{"pod reason", "meaning"}, rows), nil
}

// stateTables are the conditions of a policy, and the states of policies and of operands.
func stateTables(repo string) (string, error) {
	constants, err := apiConstants(repo)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, kind := range []struct{ title, header, prefix, goType string }{
		{"Conditions of a ClusterPolicy", "condition", "Condition", ""},
		{"States of a ClusterPolicy, in `status.state`", "state", "State", "State"},
		{"States of an operand, in `status.operands`", "state", "Operand", "OperandState"},
	} {
		var rows [][]string
		for _, c := range constants {
			if c.kind == kind.goType && strings.HasPrefix(c.name, kind.prefix) {
				rows = append(rows, []string{code(c.value), c.meaning()})
			}
		}
		if len(rows) == 0 {
			return "", fmt.Errorf("api/v1 has no constants %s*: the search has lost its way", kind.prefix)
		}
		fmt.Fprintf(&out, "%s:\n\n%s\n", kind.title, table([]string{kind.header, "meaning"}, rows))
	}
	return out.String(), nil
}
