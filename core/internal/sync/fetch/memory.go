package fetch

import (
	"container/list"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// entryOverhead is a guess at what an entry costs besides its values, in bytes.
const entryOverhead = 512

// Memory keeps what ExternalSecrets were answered last, so that a target can be
// repaired without asking a store, and so that what has not changed need not
// travel. What has not been used for longest goes first.
type Memory struct {
	limit int

	mu      sync.Mutex
	size    int
	recent  *list.List // of *memorised, the latest first
	objects map[types.NamespacedName]*list.Element
}

type memorised struct {
	object  types.NamespacedName
	version string
	answers Answers
	size    int
}

// NewMemory returns a memory of so many bytes; 0 remembers nothing.
func NewMemory(limit int) *Memory {
	return &Memory{limit: limit, recent: list.New(), objects: map[types.NamespacedName]*list.Element{}}
}

// Remember keeps an object's answers. version says what they depend on: the
// object itself, its plan and its stores.
func (m *Memory) Remember(object types.NamespacedName, version string, answers Answers) {
	item := &memorised{object: object, version: version, answers: answers, size: sizeOf(answers)}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.remove(object)

	if item.size > m.limit {
		return
	}

	m.objects[object] = m.recent.PushFront(item)
	m.size += item.size

	for m.size > m.limit {
		oldest, _ := m.recent.Back().Value.(*memorised)
		m.remove(oldest.object)
	}
}

// Recall gives an object's answers; nil where there are none of that version.
func (m *Memory) Recall(object types.NamespacedName, version string) Answers {
	m.mu.Lock()
	defer m.mu.Unlock()

	element, ok := m.objects[object]
	if !ok {
		return nil
	}

	item, _ := element.Value.(*memorised)
	if item.version != version {
		m.remove(object)

		return nil
	}

	m.recent.MoveToFront(element)

	return item.answers
}

// Forget drops the cached results of an object.
func (m *Memory) Forget(object types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.remove(object)
}

func (m *Memory) remove(object types.NamespacedName) {
	element, ok := m.objects[object]
	if !ok {
		return
	}

	item, _ := m.recent.Remove(element).(*memorised)
	m.size -= item.size

	delete(m.objects, object)
}

func sizeOf(answers Answers) int {
	size := entryOverhead

	for _, batch := range answers {
		for _, result := range batch {
			size += len(result.Value) + len(result.Revision) + entryOverhead/4

			for key, value := range result.Map {
				size += len(key) + len(value) + entryOverhead/8
			}
		}
	}

	return size
}
