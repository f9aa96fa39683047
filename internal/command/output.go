// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/spf13/cobra"
)

// OutputFlag is --output of a verb that can print JSON.
type OutputFlag struct {
	Format    string
	documents []Document
}

// Document is what a verb prints with --output json. The reference lists its fields.
type Document struct {
	// When names the flags with which it is printed, "" if it is the only one.
	When string
	// Lines: one object a line (JSON Lines); otherwise one value.
	Lines bool
	Type  reflect.Type
}

// One is a single JSON value of type T.
func One[T any](when string) Document { return Document{When: when, Type: reflect.TypeFor[T]()} }

// Lines are objects of type T, one a line.
func Lines[T any](when string) Document {
	return Document{When: when, Lines: true, Type: reflect.TypeFor[T]()}
}

// outputValue is the flag's value. It carries the documents for the reference.
type outputValue struct{ *OutputFlag }

func (v outputValue) String() string {
	if v.OutputFlag == nil { // pflag asks for the zero value's text
		return ""
	}
	return v.Format
}

func (v outputValue) Set(text string) error {
	v.Format = text
	return nil
}

func (v outputValue) Type() string { return "string" }

// Documents are what a verb prints with --output json; none if it has no such flag.
func Documents(c *cobra.Command) []Document {
	if f := c.Flags().Lookup("output"); f != nil {
		if v, is := f.Value.(outputValue); is {
			return v.documents
		}
	}
	return nil
}

// Register adds the flag to a verb that prints these documents.
func (o *OutputFlag) Register(c *cobra.Command, documents ...Document) {
	o.Format, o.documents = "text", documents
	c.Flags().VarP(outputValue{o}, "output", "o", "output format: text or json")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// Print writes v as JSON, or calls text. v is of the type of a registered document,
// or a pointer to one.
func (o *OutputFlag) Print(w io.Writer, v any, text func(io.Writer) error) error {
	switch o.Format {
	case "text":
		// So that no line that cannot be written passes for written.
		buffered := bufio.NewWriter(w)
		err, unwritten := text(buffered), buffered.Flush()
		if errors.Is(err, unwritten) { // text met it first
			return err
		}
		return errors.Join(err, unwritten)
	case "json":
		if !o.describes(reflect.TypeOf(v)) {
			return fmt.Errorf("JSON output of type %T is not registered with the command", v)
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	return Usage(fmt.Errorf("unknown output format %q (text or json)", o.Format))
}

func (o *OutputFlag) describes(t reflect.Type) bool {
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return slices.ContainsFunc(o.documents, func(d Document) bool { return !d.Lines && d.Type == t })
}

// Check refuses a bad format before any work is done.
func (o *OutputFlag) Check() error {
	if o.Format != "text" && o.Format != "json" {
		return Usage(fmt.Errorf("unknown output format %q (text or json)", o.Format))
	}
	return nil
}
