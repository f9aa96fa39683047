// SPDX-License-Identifier: Apache-2.0

package record

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ArchivedFile is SamplesFile in an archived run, compressed by gzip.
const ArchivedFile = SamplesFile + ".gz"

// Archive copies the run stored in dir to a new directory, with its samples
// compressed and unchanged. Read reads it as it reads the run itself. It
// returns the size of the copy in bytes.
func Archive(dir, out string) (size int64, err error) {
	if _, err := Read(dir); err != nil { // nothing that cannot be read is kept
		return 0, err
	}
	environment, err := os.ReadFile(filepath.Join(dir, EnvironmentFile))
	if err != nil {
		return 0, fmt.Errorf("results: %w", err)
	}
	samples, err := openSamples(dir)
	if err != nil {
		return 0, fmt.Errorf("results: %w", err)
	}
	defer samples.Close()
	for _, name := range []string{SamplesFile, ArchivedFile} {
		if _, err := os.Stat(filepath.Join(out, name)); err == nil {
			return 0, fmt.Errorf("archive %s: holds a run already: remove it or give another directory", out)
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return 0, fmt.Errorf("archive: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(out, ArchivedFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, fmt.Errorf("archive: %w", err)
	}
	w, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err == nil {
		_, err = io.Copy(w, samples)
		err = errors.Join(err, w.Close())
	}
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Close()); err != nil {
		return 0, fmt.Errorf("archive: %w", err)
	}
	return info.Size() + int64(len(environment)), os.WriteFile(filepath.Join(out, EnvironmentFile), environment, 0o644)
}

// openSamples opens the samples of a run, which may be archived.
func openSamples(dir string) (io.ReadCloser, error) {
	plain, err := os.Open(filepath.Join(dir, SamplesFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return plain, err
	}
	f, gzErr := os.Open(filepath.Join(dir, ArchivedFile))
	if gzErr != nil {
		return nil, err // that of the name which users know
	}
	r, gzErr := gzip.NewReader(f)
	if gzErr != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ArchivedFile), gzErr)
	}
	return &archived{r, f}, nil
}

// archived is a compressed file that is read.
type archived struct {
	*gzip.Reader
	file *os.File
}

func (a *archived) Close() error { return errors.Join(a.Reader.Close(), a.file.Close()) }
