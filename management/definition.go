package management

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// exportDefinitions writes definitions, of the whole node or of the virtual host in the path.
func (a *API) exportDefinitions(r *request) {
	vhost, one := r.vars["in"]
	if one && !a.Broker.HasVHost(vhost) {
		a.bad(r.w, "vhost_not_found")
		return
	}
	text := encode(a.Broker.Export(vhost))
	h := r.w.Header()
	h.Set("Content-Type", "application/json")
	if name := r.URL.Query().Get("download"); name != "" {
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	}
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		r.w.WriteHeader(http.StatusNotModified)
		return
	}
	r.w.Write(text)
}

// importDefinitions adds the definitions in the body, or in the field file of a form.
func (a *API) importDefinitions(r *request) {
	vhost, one := r.vars["in"]
	if one && !a.Broker.HasVHost(vhost) {
		a.fail(r.w, http.StatusNotFound, "not_found", "vhost_not_found")
		return
	}
	data, redirect, err := definitionsOf(r)
	switch {
	case err != nil:
		a.bad(r.w, err.Error())
		return
	case len(strings.TrimSpace(string(data))) == 0:
		data = []byte("{}")
	}
	if err := a.Broker.Import(vhost, data); err != nil {
		a.refuse(r.w, err)
		return
	}
	if redirect != "" {
		r.w.Header().Set("Location", redirect)
		r.w.WriteHeader(http.StatusSeeOther)
		return
	}
	r.w.WriteHeader(http.StatusNoContent)
}

// definitionsOf reads the text of definitions, and where to go afterwards, out of a request.
func definitionsOf(r *request) (data []byte, redirect string, err error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // what cannot be read is no form
	if kind != "multipart/form-data" {
		if data, err = io.ReadAll(r.Body); err != nil {
			return nil, "", fmt.Errorf("Exceeded HTTP request body size limit")
		}
		return data, "", nil
	}
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		return nil, "", fmt.Errorf("the form cannot be read: %w", err)
	}
	defer r.MultipartForm.RemoveAll()
	file, _, err := r.FormFile("file")
	if err != nil {
		return nil, "", fmt.Errorf("the form has no field file")
	}
	defer file.Close()
	data, err = io.ReadAll(file)
	redirect = r.FormValue("redirect")
	if !strings.HasPrefix(redirect, "/") || strings.HasPrefix(redirect, "//") { // to this node only
		redirect = ""
	}
	return data, redirect, err
}
