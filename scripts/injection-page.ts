/** Writes the table of annotations in docs/injection.md from the injector's own table. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { DOMAIN } from '../src/kubernetes/injector/names.ts';
import { SETTINGS } from '../src/kubernetes/injector/settings.ts';

const BEGIN = '<!-- annotations: written by `npm run docs` -->\n';
const END = '<!-- /annotations -->\n';

/** Renders the page. */
export function renderInjectionPage(): string {
  const text = readFileSync(fileURLToPath(new URL('../docs/injection.md', import.meta.url)), 'utf8');
  const [before, rest = ''] = text.split(BEGIN);
  const after = rest.split(END)[1];
  if (after === undefined) throw new Error(`docs/injection.md has no ${BEGIN.trim()} … ${END.trim()}`);
  return `${before}${BEGIN}\n${renderTable()}\n${END}${after}`;
}

function renderTable(): string {
  const rows = Object.values(SETTINGS).map(
    ({ name, form, fallback, description, example }) =>
      `| \`${DOMAIN}/${name}\` | ${form.expected} | ${fallback} | ${description} | \`${example}\` |\n`,
  );
  return `| annotation | value | default | description | example |\n| --- | --- | --- | --- | --- |\n${rows.join('')}`;
}
