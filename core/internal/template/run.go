package template

import (
	"errors"
	"fmt"
	"reflect"
	"text/template"
	"time"
)

const (
	// maxValue is the size of the largest value that a function is given or
	// makes, everything inside of it counted as often as it would be printed.
	maxValue = 8 << 20
	// maxProduced by all functions of one Render.
	maxProduced = 64 << 20
	// maxLevels of lists and dicts in each other. A dict that holds itself has
	// more.
	maxLevels = 100
	// maxCalls of templates in each other.
	maxCalls = 100
	// perValue is what a value costs besides its text.
	perValue = 32
)

// run is one Render.
type run struct {
	functions map[string]*function
	timeout   time.Duration
	deadline  time.Time
	// left of maxProduced.
	left int
	// depth of the template that runs.
	depth int
	// data is the identity of the template's data, for a better message.
	data   uintptr
	output output
}

// hidden functions are those that compile inserts.
func (r *run) hidden() template.FuncMap {
	return template.FuncMap{
		callEnter: r.enter,
		callLeave: r.leave,
		callTick:  r.tick,
		callField: r.field,
		callPrint: r.print,
	}
}

func (r *run) tick() (string, error) {
	if time.Now().After(r.deadline) {
		return "", fail("rendering takes longer than %s", r.timeout)
	}

	return "", nil
}

func (r *run) enter() (string, error) {
	r.depth++
	if r.depth > maxCalls {
		return "", fail("templates call each other more than %d levels deep", maxCalls)
	}

	return r.tick()
}

func (r *run) leave() string {
	r.depth--

	return ""
}

// print is what an action that only has a value prints.
func (r *run) print(value any) (string, error) {
	if _, err := r.tick(); err != nil {
		return "", err
	}

	text, ok := value.(string)
	if !ok {
		var err error
		if text, err = sprint(value); err != nil {
			return "", err
		}
	}

	if len(text) > r.output.limit-len(r.output.bytes) {
		return "", r.output.full()
	}

	return text, nil
}

func sprint(value any) (string, error) {
	if value == nil {
		// As text/template has it.
		return "<no value>", nil
	}

	if size(reflect.ValueOf(value)) > maxValue {
		return "", fail("a value is too large to be printed, or nested too deeply")
	}

	return fmt.Sprint(value), nil
}

// wrap returns a function of the same parameters that bounds a call, and
// whose error holds no value.
func (r *run) wrap(name string, f *function) any {
	call := reflect.ValueOf(f.call)
	typ := call.Type()
	in := make([]reflect.Type, typ.NumIn())

	for i := range in {
		in[i] = typ.In(i)
	}

	out := []reflect.Type{typ.Out(0), reflect.TypeFor[error]()}

	return reflect.MakeFunc(reflect.FuncOf(in, out, typ.IsVariadic()), func(args []reflect.Value) []reflect.Value {
		result, err := r.call(f, call, args)
		if err == nil {
			return []reflect.Value{result, reflect.Zero(out[1])}
		}

		if shown, ok := errors.AsType[*failure](err); ok {
			shown.function = name
		}

		return []reflect.Value{reflect.Zero(out[0]), reflect.ValueOf(&err).Elem()}
	}).Interface()
}

// call calls a function if time and budget allow. Its errors are failures.
func (r *run) call(f *function, call reflect.Value, args []reflect.Value) (result reflect.Value, err error) {
	if _, err := r.tick(); err != nil {
		return result, err
	}

	flat := args
	if call.Type().IsVariadic() {
		last := len(args) - 1
		flat = append([]reflect.Value{}, args[:last]...)

		for i := range args[last].Len() {
			flat = append(flat, args[last].Index(i))
		}
	}

	if !f.shallow && size(flat...) > maxValue {
		return result, fail("its arguments are too large, or nested too deeply")
	}

	// After this nothing of a panic or of an error is taken over.
	defer func() {
		if recover() != nil {
			err = fail("%s", f.reason())
		}
	}()

	if f.bound != nil {
		produced, err := f.bound(r, flat)
		if err != nil {
			return result, err
		}

		if produced > maxValue {
			return result, fail("its result would be too large")
		}
	}

	results := invoke(call, args)
	if len(results) == 2 && !results[1].IsNil() {
		returned, _ := reflect.TypeAssert[error](results[1])
		if shown, ok := errors.AsType[*failure](returned); ok {
			return result, shown
		}

		return result, fail("%s", f.reason())
	}

	return results[0], r.charge(f, flat, results[0])
}

func invoke(call reflect.Value, args []reflect.Value) []reflect.Value {
	if call.Type().IsVariadic() {
		return call.CallSlice(args)
	}

	return call.Call(args)
}

// charge takes what a function made from what may be made. What a result
// shares with an argument costs nothing.
func (r *run) charge(f *function, args []reflect.Value, result reflect.Value) error {
	cost := shallowSize(result)
	if f.cost != nil {
		cost = f.cost(args, result)
	}

	if cost > maxValue {
		return fail("its result is too large, or nested too deeply")
	}

	r.left -= cost
	if r.left < 0 {
		return fail("the template's functions have made more than %d bytes", maxProduced)
	}

	return nil
}

// shallowSize is the size of a value without that of what it holds.
func shallowSize(v reflect.Value) int {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}

	switch v.Kind() {
	case reflect.String:
		return perValue + v.Len()
	case reflect.Slice, reflect.Map:
		return perValue * (1 + v.Len())
	case reflect.Struct:
		return size(v)
	default:
		return 0
	}
}

// size of values with all that they hold. Above maxValue it stops counting.
func size(values ...reflect.Value) int {
	s := sizer{}
	for _, v := range values {
		s.add(v, 0)
	}

	return s.total
}

type sizer struct{ total int }

func (s *sizer) add(v reflect.Value, level int) {
	if level > maxLevels {
		s.total += maxValue + 1
	}

	s.total += perValue
	if s.total > maxValue {
		return
	}

	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		// Neither of the types that have pointers, time.Time and semver.Version,
		// is large.
		if v.Kind() == reflect.Interface && !v.IsNil() {
			s.total -= perValue
			s.add(v.Elem(), level)
		}
	case reflect.String:
		s.total += v.Len()
	case reflect.Slice, reflect.Array:
		s.list(v, level)
	case reflect.Map:
		for entries := v.MapRange(); entries.Next() && s.total <= maxValue; {
			s.add(entries.Key(), level+1)
			s.add(entries.Value(), level+1)
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && s.total <= maxValue; i++ {
			s.add(v.Field(i), level+1)
		}
	default:
	}
}

func (s *sizer) list(v reflect.Value, level int) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		s.total += v.Len()

		return
	}

	for i := 0; i < v.Len() && s.total <= maxValue; i++ {
		s.add(v.Index(i), level+1)
	}
}
