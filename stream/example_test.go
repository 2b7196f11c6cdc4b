package stream_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/toolcircuit/toolcircuit/stream"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// An answer that breaks after its first part counts as a failure. Without stream.Open the call would
// have been healthy when it returned.
func ExampleOpen() {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	if err != nil {
		panic(err)
	}
	read := func(ctx context.Context) error {
		body, call, err := stream.Open(ctx, set, "search", toolset.Unknown, func(context.Context) (io.Reader, error) {
			return io.MultiReader(strings.NewReader("one result"), broken{}), nil
		})
		if err != nil {
			return err // refused, or it could not be opened
		}
		defer call.End(nil) // if the reader has enough
		for buffer := make([]byte, 64); err == nil; {
			_, err = body.Read(buffer)
			err = call.Part(err)
		}
		return err
	}
	for range 6 {
		err = read(context.Background())
	}
	fmt.Println(err)
	// Output: toolcircuit: search: dependency_open
}

// broken is the end of a connection that was reset.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
