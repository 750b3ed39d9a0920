/** Writes docs/config.md from the config's schema, so that the page cannot say anything else than the code; and the other pages that code writes. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type JsonSchema, toJsonSchema } from '../src/config/json-schema.ts';
import { renderProbePage } from './probe-page.ts';

/** Writers by page. */
const PAGES: Readonly<Record<string, () => string>> = { 'docs/config.md': renderConfigPage, 'docs/probe.md': renderProbePage };

const INTRO = `# Configuration

One YAML file, \`sidegate run --config FILE\`. Unknown keys are errors. \`sidegate check\` shows every problem with its place;
\`sidegate schema\` prints the JSON Schema for editors. This page is written from the same schema (\`npm run docs\`).

Durations are a number and \`ms\`, \`s\`, \`m\`, \`h\` or \`d\`; sizes are bytes, or a number and \`k\`, \`M\`, \`G\`, \`Ki\`, \`Mi\` or \`Gi\`.
File paths count from the config file. A change of \`routes\` or \`identity\` takes effect without a restart (also on SIGHUP); a change of
anything else takes one, and is refused with the reason until then. Files with secrets, users and certificates are watched, too.

| key | value | default | meaning |
| --- | --- | --- | --- |
`;

interface Row {
  readonly key: string;
  readonly value: string;
  readonly fallback: string;
  readonly text: string;
}

/** The page as it should be. */
export function renderConfigPage(): string {
  const rows = toRows(toJsonSchema(), '');
  return INTRO + rows.map(({ key, value, fallback, text }) => `| \`${key}\` | ${value} | ${fallback} | ${text} |\n`).join('');
}

function toRows(schema: JsonSchema, path: string): Row[] {
  const variants = toVariants(schema);
  // What may be one or a list of them is shown as the list.
  const lists = variants.flatMap(({ items }) => (items === undefined ? [] : [items]));
  if (lists.length > 0) return lists.flatMap((items) => toRows(items, `${path}[]`));
  const rows = variants.flatMap((variant) =>
    Object.entries(variant.properties ?? {}).flatMap(([name, property]) => {
      const key = path === '' ? name : `${path}.${name}`;
      const inner = toRows(property, key);
      const isBareSection = inner.length > 0 && property['description'] === undefined;
      const isOneOfSeveral = variants.some(({ properties }) => properties !== undefined && !(name in properties));
      return isBareSection ? inner : [toRow(key, property, isOneOfSeveral ? {} : variant), ...inner];
    }),
  );
  // Variants may share some of their keys.
  return rows.filter(({ key }, index) => rows.findIndex((row) => row.key === key) === index);
}

function toVariants(schema: JsonSchema): readonly JsonSchema[] {
  return schema.anyOf === undefined ? [schema] : schema.anyOf.flatMap(toVariants);
}

function toRow(key: string, schema: JsonSchema, parent: JsonSchema): Row {
  const required = parent['required'];
  const isRequired = Array.isArray(required) && required.includes(key.split('.').at(-1));
  const fallback = schema['default'];
  return {
    key,
    value: toValueText(schema),
    fallback: isRequired
      ? 'required'
      : fallback === undefined || isPlainObject(fallback)
        ? '–'
        : `\`${typeof fallback === 'string' ? fallback : JSON.stringify(fallback)}\``,
    text: String(schema['description'] ?? ''),
  };
}

function isPlainObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function toValueText(schema: JsonSchema): string {
  const examples = schema['examples'];
  if (Array.isArray(examples)) return `\`${examples[0]}\``;
  if (Array.isArray(schema['enum'])) return schema['enum'].map((value) => `\`${value}\``).join(', ');
  if (schema['const'] !== undefined) return `\`${schema['const']}\``;
  if (schema.anyOf !== undefined) return [...new Set(schema.anyOf.map(toValueText))].join(' or ');
  if (schema['type'] === 'array') return `list of ${schema.items === undefined ? 'values' : toValueText(schema.items)}`;
  const words: Readonly<Record<string, string>> = {
    object: 'mapping',
    string: 'text',
    integer: 'whole number',
    number: 'number',
    boolean: '`true` or `false`',
  };
  return words[String(schema['type'])] ?? 'value';
}

if (import.meta.main) {
  for (const [page, render] of Object.entries(PAGES)) {
    const file = fileURLToPath(new URL(`../${page}`, import.meta.url));
    const text = render();
    const isCurrent = readFileSync(file, { encoding: 'utf8', flag: 'a+' }) === text;
    writeFileSync(file, text);
    console.log(`${page} ${isCurrent ? 'is current' : 'written'}`);
  }
}
