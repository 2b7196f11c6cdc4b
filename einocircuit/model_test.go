package einocircuit_test

import (
	"testing"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/einocircuit"
)

// What a model is offered while web_search is hidden, whichever way it was given its tools.
func TestModel(t *testing.T) {
	infos := func(names ...string) (all []*schema.ToolInfo) {
		for _, name := range names {
			all = append(all, &schema.ToolInfo{Name: name})
		}
		return all
	}
	run(t, kinds["invokable"], nil, nil, func(r *rig) {
		require.NoError(r, r.set.SetOverride("web_search", toolcircuit.OverrideOpen))
		for name, test := range map[string]struct {
			bind, given []*schema.ToolInfo
			want        []string
		}{
			"no tools":       {},
			"bound":          {bind: infos("web_search", "notes"), want: []string{"notes"}},
			"given":          {bind: infos("notes"), given: infos("web_search", "other"), want: []string{"other"}},
			"all are hidden": {bind: infos("web_search"), want: []string{"web_search"}},
		} {
			var turns []turn
			m := einocircuit.Model(r.set, script{next: func(int, turn) *schema.Message { return says("") }, turns: &turns})
			var err error
			if test.bind != nil {
				m, err = m.WithTools(test.bind)
				require.NoError(r, err)
			}
			var opts []model.Option
			if test.given != nil {
				opts = append(opts, model.WithTools(test.given))
			}
			_, err = m.Generate(r.Context(), nil, opts...)
			require.NoError(r, err)
			require.Equal(r, test.want, turns[0].tools, name)
		}
	})
}
