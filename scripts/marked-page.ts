/** Pages that are written by hand except for marked blocks, which `npm run docs` writes, so that docs and code always agree. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');

/** Returns a renderer of the page with its blocks rendered; `blocks`: renderers by the name in the marks. */
export function withBlocks(page: string, blocks: Readonly<Record<string, () => string>>): () => string {
  return () => {
    let text = readFileSync(join(ROOT, page), 'utf8');
    for (const [name, render] of Object.entries(blocks)) {
      const [begin, end] = [`<!-- ${name}: written by \`npm run docs\` -->\n`, `<!-- /${name} -->\n`];
      const [before, rest = ''] = text.split(begin);
      const after = rest.split(end)[1];
      if (after === undefined) throw new Error(`${page} has no ${begin.trim()} … ${end.trim()}`);
      text = `${before}${begin}\n${render()}\n${end}${after}`;
    }
    return text;
  };
}
