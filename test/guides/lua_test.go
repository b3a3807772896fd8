package guides

import (
	"errors"
	"fmt"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// health is what Argo CD shows of an object.
type health struct{ status, message string }

// argoHealth runs a health check as Argo CD documents it: an object that is being deleted is Progressing whatever the
// check says. Otherwise the check gets the object as the global obj, has no libraries but the basic one and table, and
// returns a table.
func argoHealth(script string, object *unstructured.Unstructured) (health, error) {
	if object.GetDeletionTimestamp() != nil {
		return health{"Progressing", "Pending deletion"}, nil
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return health{}, fmt.Errorf("opening the library %q: %w", name, err)
		}
	}
	state.SetGlobal("obj", luaValue(state, object.Object))
	if err := state.DoString(script); err != nil {
		return health{}, fmt.Errorf("running the health check: %w", err)
	}
	result, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		return health{}, errors.New("the health check returns no table")
	}
	return health{
		lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message")),
	}, nil
}

// luaValue returns a value of decoded JSON for Lua.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	case []any:
		table := state.NewTable()
		for _, element := range value {
			table.Append(luaValue(state, element))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, element := range value {
			table.RawSetString(key, luaValue(state, element))
		}
		return table
	}
	return lua.LNil
}
