// A client in Go against a server: `gomemcache HOST:PORT fill|look`.
//
// `fill` tries every kind of request that gomemcache has, from several goroutines at once, compares all it gets with
// what it set, and leaves records behind. `look` compares what is left, also after the server died. It ends with exit
// code 0 and the line `ok` if all was as it should be. It knows nothing of the server.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const (
	workers = 8
	records = 200
)

// fail ends the program with a reason.
func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

// is fails unless an error is the expected one.
func is(what string, found, expected error) {
	if !errors.Is(found, expected) {
		fail("%s: found error %v, expected %v", what, found, expected)
	}
}

func key(worker, n int) string { return fmt.Sprintf("go-%d-%d", worker, n) }

// value is made from its place, of 0 to 20,000 bytes of every kind.
func value(worker, n int) []byte {
	value := make([]byte, (n*n+worker)%20000)
	for i := range value {
		value[i] = byte(i*7 + n + worker)
	}
	return value
}

func flags(n int) uint32 { return uint32(n) * 2654435761 }

// holds fails unless a key has this value and flags.
func holds(client *memcache.Client, key string, value []byte, flags uint32) *memcache.Item {
	item, err := client.Get(key)
	if err != nil {
		fail("get %s: %v", key, err)
	}
	if !bytes.Equal(item.Value, value) || item.Flags != flags {
		fail("get %s: %d bytes with flags %d, expected %d with %d",
			key, len(item.Value), item.Flags, len(value), flags)
	}
	return item
}

// absent fails if a key has a value.
func absent(client *memcache.Client, key string) {
	_, err := client.Get(key)
	is("get "+key, err, memcache.ErrCacheMiss)
}

func fill(client *memcache.Client) {
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := 0; n < records; n++ {
				item := memcache.Item{Key: key(worker, n), Value: value(worker, n), Flags: flags(n)}
				is("set", client.Set(&item), nil)
				holds(client, item.Key, item.Value, item.Flags)
			}
			// All workers count one number, and take turns at one record.
			for n := 0; n < records; n++ {
				_, err := client.Increment("go-sum", 1)
				if err == memcache.ErrCacheMiss {
					err = client.Add(&memcache.Item{Key: "go-sum", Value: []byte("1")})
					if err == memcache.ErrNotStored {
						_, err = client.Increment("go-sum", 1)
					}
				}
				is("increment", err, nil)
			}
		}()
	}
	group.Wait()
	holds(client, "go-sum", []byte(fmt.Sprint(workers*records)), 0)

	large := bytes.Repeat([]byte("large"), 200000)
	is("set", client.Set(&memcache.Item{Key: "go-large", Value: large}), nil)
	holds(client, "go-large", large, 0)
	err := client.Set(&memcache.Item{Key: "go-too-large", Value: make([]byte, 1<<20)})
	if err == nil {
		fail("a value over the limit was stored")
	}
	absent(client, "go-too-large")

	is("set", client.Set(&memcache.Item{Key: "go-cas", Value: []byte("first")}), nil)
	first := holds(client, "go-cas", []byte("first"), 0)
	other := holds(client, "go-cas", []byte("first"), 0)
	first.Value = []byte("second")
	is("cas", client.CompareAndSwap(first), nil)
	other.Value = []byte("never")
	is("cas", client.CompareAndSwap(other), memcache.ErrCASConflict)
	is("delete", client.Delete("go-cas"), nil)
	is("cas", client.CompareAndSwap(other), memcache.ErrCacheMiss)
	is("delete", client.Delete("go-cas"), memcache.ErrCacheMiss)

	is("set", client.Set(&memcache.Item{Key: "go-text", Value: []byte("middle"), Flags: 3}), nil)
	is("append", client.Append(&memcache.Item{Key: "go-text", Value: []byte(">")}), nil)
	is("prepend", client.Prepend(&memcache.Item{Key: "go-text", Value: []byte("<")}), nil)
	is("append", client.Append(&memcache.Item{Key: "go-absent", Value: []byte(">")}), memcache.ErrNotStored)
	is("replace", client.Replace(&memcache.Item{Key: "go-absent", Value: []byte("x")}), memcache.ErrNotStored)
	is("add", client.Add(&memcache.Item{Key: "go-text", Value: []byte("never")}), memcache.ErrNotStored)
	left, err := client.Decrement("go-sum", 1<<63)
	if left != 0 || err != nil {
		fail("decrement: %d, %v", left, err)
	}

	// A time that has passed, one to come, and one that is changed: nothing here waits.
	is("set", client.Set(&memcache.Item{Key: "go-over", Value: []byte("x"), Expiration: -1}), nil)
	absent(client, "go-over")
	is("set", client.Set(&memcache.Item{Key: "go-later", Value: []byte("later"), Expiration: 100000}), nil)
	item, err := client.GetAndTouch("go-later", 200000)
	is("gat", err, nil)
	if string(item.Value) != "later" {
		fail("gat: %q", item.Value)
	}
	is("touch", client.Touch("go-later", 300000), nil)
	is("touch", client.Touch("go-absent", 10), memcache.ErrCacheMiss)
	is("set", client.Set(&memcache.Item{Key: "go-touched", Value: []byte("x")}), nil)
	is("touch", client.Touch("go-touched", -1), nil)
	absent(client, "go-touched")
	is("ping", client.Ping(), nil)
}

func look(client *memcache.Client) {
	var keys []string
	for worker := 0; worker < workers; worker++ {
		for n := 0; n < records; n++ {
			keys = append(keys, key(worker, n))
		}
	}
	items, err := client.GetMulti(append(keys, "go-absent"))
	is("get of many", err, nil)
	if len(items) != len(keys) {
		fail("get of many: %d of %d", len(items), len(keys))
	}
	for worker := 0; worker < workers; worker++ {
		for n := 0; n < records; n++ {
			item := items[key(worker, n)]
			if item == nil || !bytes.Equal(item.Value, value(worker, n)) || item.Flags != flags(n) {
				fail("get of many: %s is another", key(worker, n))
			}
		}
	}
	holds(client, "go-sum", []byte("0                   ")[:len(fmt.Sprint(workers*records))], 0)
	holds(client, "go-large", bytes.Repeat([]byte("large"), 200000), 0)
	holds(client, "go-text", []byte("<middle>"), 3)
	holds(client, "go-later", []byte("later"), 0)
	for _, gone := range []string{"go-cas", "go-over", "go-touched", "go-too-large", "go-absent"} {
		absent(client, gone)
	}
}

func main() {
	if len(os.Args) != 3 {
		fail("gomemcache HOST:PORT fill|look")
	}
	client := memcache.New(os.Args[1])
	// Longer than any test may take: a server that hangs fails it.
	client.Timeout = time.Minute
	client.MaxIdleConns = workers
	switch os.Args[2] {
	case "fill":
		fill(client)
	case "look":
		look(client)
	default:
		fail("fill or look, not %q", os.Args[2])
	}
	fmt.Println("ok")
}
