package fetch

import (
	"bytes"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/external-secrets/eso/core/store"
)

func answer(size int) Answers {
	return Answers{{store.Result{Value: bytes.Repeat([]byte("x"), size)}}}
}

func TestMemory(t *testing.T) {
	t.Parallel()

	m := NewMemory(10_000)
	named := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }
	has := func(name string) bool { return m.Recall(named(name), "v1") != nil }

	m.Remember(named("a"), "v1", answer(3000))
	m.Remember(named("b"), "v1", answer(3000))

	if !has("b") || !has("a") {
		t.Fatal("what fits is not remembered")
	}

	m.Remember(named("c"), "v1", answer(3000))

	if has("b") || !has("a") || !has("c") {
		t.Error("what goes is not what was used longest ago")
	}

	if m.Remember(named("huge"), "v1", answer(20_000)); has("huge") || !has("a") {
		t.Error("what cannot fit pushes out the rest")
	}

	if m.Recall(named("a"), "v2") != nil || has("a") {
		t.Error("the answers to another plan are given, or kept")
	}

	m.Forget(named("c"))

	if has("c") || m.size != 0 || m.recent.Len() != 0 {
		t.Errorf("something is left: %d bytes, %d objects", m.size, m.recent.Len())
	}

	if none := NewMemory(0); true {
		none.Remember(named("a"), "v1", answer(1))

		if none.Recall(named("a"), "v1") != nil {
			t.Error("a memory of nothing remembers")
		}
	}
}
