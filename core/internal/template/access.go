package template

import (
	"reflect"
	"strings"
)

// field follows a path of names from a value: keys of dicts, fields of what
// the gen functions return, methods of times and versions. The arguments are
// for the last of them.
func (r *run) field(receiver any, path string, args ...any) (any, error) {
	if _, err := r.tick(); err != nil {
		return nil, err
	}

	names := strings.Split(path, ".")

	for i, name := range names {
		var given []any
		if i == len(names)-1 {
			given = args
		}

		var err error
		if receiver, err = r.step(reflect.ValueOf(receiver), name, given); err != nil {
			return nil, err
		}
	}

	return receiver, nil
}

func (r *run) step(v reflect.Value, name string, args []any) (any, error) {
	if !v.IsValid() {
		return nil, fail("%q is asked of what has no value", name)
	}

	if hasMethods(v.Type()) {
		if method := v.MethodByName(name); method.IsValid() {
			return r.method(name, method, args)
		}
	}

	if len(args) > 0 {
		return nil, fail("%q takes no arguments", name)
	}

	switch {
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		value := v.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key()))
		if value.IsValid() {
			return value.Interface(), nil
		}

		if v.Pointer() == r.data {
			return nil, fail("no value %q was fetched", name)
		}

		return nil, fail("the dict has no key %q", name)
	case v.Kind() == reflect.Struct:
		if field, ok := v.Type().FieldByName(name); ok && field.IsExported() {
			return v.FieldByIndex(field.Index).Interface(), nil
		}
	default:
	}

	return nil, fail("%q is asked of what is no dict", name)
}

// hasMethods reports whether templates may call the methods of a type: those of
// times and versions compute, and do nothing else.
func hasMethods(typ reflect.Type) bool {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}

	switch typ.PkgPath() {
	case "time", "github.com/Masterminds/semver/v3":
		return true
	default:
		return false
	}
}

// maxLayout is the longest text that a method is given. A time's Format can
// make twice the text of its layout.
const maxLayout = 4096

func (r *run) method(name string, method reflect.Value, args []any) (any, error) {
	typ := method.Type()
	if typ.IsVariadic() || typ.NumIn() != len(args) {
		return nil, fail("%q takes another number of arguments", name)
	}

	if n := typ.NumOut(); n != 1 && (n != 2 || typ.Out(1) != reflect.TypeFor[error]()) {
		return nil, fail("%q has not one result", name)
	}

	values := make([]reflect.Value, len(args))

	for i, arg := range args {
		value, ok := convert(arg, typ.In(i))
		if !ok || size(value) > maxLayout {
			return nil, fail("%q takes other arguments", name)
		}

		values[i] = value
	}

	result, err := r.call(&function{why: "the method cannot do this"}, method, values)
	if err != nil {
		return nil, err
	}

	return result.Interface(), nil
}

// convert makes a method's argument out of a template's, whose numbers are
// ints.
func convert(arg any, typ reflect.Type) (reflect.Value, bool) {
	v := reflect.ValueOf(arg)

	switch {
	case !v.IsValid():
		return v, false
	case v.Type().AssignableTo(typ):
		return v, true
	case v.CanInt() && (typ.Kind() >= reflect.Int && typ.Kind() <= reflect.Uint64):
		return v.Convert(typ), true
	default:
		return v, false
	}
}

// equal is text/template's eq. That one formats what it cannot compare, however
// large it is.
func equal(first any, others ...any) (bool, error) {
	if len(others) == 0 {
		return false, fail("it takes at least two arguments")
	}

	for _, other := range others {
		same, err := equalOne(reflect.ValueOf(first), reflect.ValueOf(other))
		if same || err != nil {
			return same, err
		}
	}

	return false, nil
}

func notEqual(first, second any) (bool, error) {
	same, err := equal(first, second)

	return !same, err
}

func equalOne(a, b reflect.Value) (bool, error) {
	switch {
	case isNil(a) || isNil(b):
		return isNil(a) && isNil(b), nil
	case a.CanInt() && b.CanInt():
		return a.Int() == b.Int(), nil
	case a.CanUint() && b.CanUint():
		return a.Uint() == b.Uint(), nil
	case a.CanInt() && b.CanUint():
		return a.Int() >= 0 && uint64(a.Int()) == b.Uint(), nil //nolint:gosec // not negative
	case a.CanUint() && b.CanInt():
		return b.Int() >= 0 && uint64(b.Int()) == a.Uint(), nil //nolint:gosec // not negative
	case a.CanFloat() && b.CanFloat():
		return a.Float() == b.Float(), nil
	case a.CanComplex() && b.CanComplex():
		return a.Complex() == b.Complex(), nil
	case a.Kind() != b.Kind() || !a.Comparable() || !b.Comparable():
		return false, fail("these cannot be compared with each other")
	case a.Kind() == reflect.String || a.Kind() == reflect.Bool:
		return a.Convert(basic(a)).Interface() == b.Convert(basic(b)).Interface(), nil
	default:
		return a.Interface() == b.Interface(), nil
	}
}

func basic(v reflect.Value) reflect.Type {
	if v.Kind() == reflect.Bool {
		return reflect.TypeFor[bool]()
	}

	return reflect.TypeFor[string]()
}

func isNil(v reflect.Value) bool {
	if !v.IsValid() {
		return true
	}

	switch v.Kind() {
	case reflect.Map, reflect.Pointer, reflect.Slice:
		return v.IsNil()
	default:
		return false
	}
}
