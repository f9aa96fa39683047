// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/spf13/pflag"
)

// bounded is a flag's number, whose error names its bounds.
type bounded[T uint8 | uint16] struct {
	to          *T
	least, most uint64
}

// boundedVar adds a flag of a number from least to the greatest that its type has.
func boundedVar[T uint8 | uint16](flags *pflag.FlagSet, to *T, name string, value, least T, usage string) {
	*to = value
	flags.Var(&bounded[T]{to, uint64(least), uint64(^T(0))}, name, usage)
}

// Set implements pflag.Value.
func (b *bounded[T]) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < b.least || n > b.most {
		return fmt.Errorf("want %d to %d", b.least, b.most)
	}
	*b.to = T(n)
	return nil
}

// String implements pflag.Value.
func (b *bounded[T]) String() string {
	if b.to == nil {
		return "0"
	}
	return strconv.FormatUint(uint64(*b.to), 10)
}

// Type implements pflag.Value.
func (b *bounded[T]) Type() string { return reflect.TypeFor[T]().String() }
