/** Writes the chart's values.yaml, values.schema.json and the table in its README from the values' schema in chart/values.ts. */
import { stringify } from 'yaml';
import { z } from 'zod';
import { type Row, toKeyTable, toRows } from '../scripts/schema-rows.ts';
import type { JsonSchema } from '../src/config/schema/json-schema.ts';
import { ChartValues } from './values.ts';

/** Comments are wrapped at this many columns. */
const WIDTH = 110;

/** Draft-07, which every Helm that this chart supports reads. */
function toValuesSchema(): JsonSchema {
  return z.toJSONSchema(ChartValues, { io: 'input', target: 'draft-07' }) as JsonSchema;
}

/** Renders values.schema.json. */
export function renderValuesSchema(): string {
  // Helm merges the defaults from values.yaml.
  const schema = requireValues(toValuesSchema(), ChartValues.parse({}));
  return `${JSON.stringify({ ...schema, title: 'Values of the chart sidegate' }, null, 2)}\n`;
}

/** Helm removes values that are set to null. Only values that are empty by default may be null, because templates read all others. */
function requireValues(schema: JsonSchema, values: unknown): JsonSchema {
  if (schema.properties === undefined) return schema;
  const entries = Object.entries(schema.properties).map(([name, inner]) => [name, inner, toValueAt(values, name)] as const);
  return {
    ...schema,
    properties: Object.fromEntries(entries.map(([name, inner, value]) => [name, requireValues(inner, value)])),
    required: entries.filter(([, inner, value]) => inner.properties !== undefined || !isEmpty(value)).map(([name]) => name),
  };
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === '') return true;
  return typeof value === 'object' && value !== null && Object.keys(value).length === 0;
}

/** Renders values.yaml: every value with its default and its description. */
export function renderValuesYaml(): string {
  const head = '# Values of the chart sidegate. Written from chart/values.ts (`npm run docs`).\n';
  return head + renderGroup(toValuesSchema(), ChartValues.parse({}), '');
}

/** The table of the chart's README. */
export function renderValueTable(): string {
  return toKeyTable(['value', 'type', 'default', 'description'], toValueRows());
}

function toValueRows(): readonly Row[] {
  const rows = toRows(toValuesSchema(), '');
  const defaults = ChartValues.parse({});
  return rows.map((row) => {
    const isGroup = rows.some(({ key }) => key.startsWith(`${row.key}.`));
    return { ...row, fallback: isGroup ? '–' : toFallback(toValueAt(defaults, row.key)) };
  });
}

function toFallback(value: unknown): string {
  if (value === undefined) return 'none';
  if (typeof value !== 'object' || value === null) return value === '' ? 'empty' : `\`${value}\``;
  return isEmpty(value) ? 'empty' : `\`${JSON.stringify(value)}\``;
}

function toValueAt(values: unknown, path: string): unknown {
  return path.split('.').reduce((value, name) => (value as Readonly<Record<string, unknown>>)[name], values);
}

function renderGroup(schema: JsonSchema, values: Readonly<Record<string, unknown>>, indent: string): string {
  const parts = Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const value = values[name];
    const examples = property['examples'];
    const comment = wrap(`${property['description']}${toChoices(property)}`, indent);
    if (value === undefined) return `${comment}${indent}# ${stringify({ [name]: (examples as readonly unknown[])[0] })}`;
    if (property.properties === undefined) return comment + indentBy(stringify({ [name]: value }, { lineWidth: 0 }), indent);
    return `${comment}${indent}${name}:\n${renderGroup(property, value as Readonly<Record<string, unknown>>, `${indent}  `)}`;
  });
  const gap = indent === '' ? '\n' : '';
  return parts.map((part) => gap + part).join('');
}

function toChoices(property: JsonSchema): string {
  const choices = property['enum'];
  const isSaid = (choice: unknown): boolean => String(property['description']).includes(`\`${choice}\``);
  if (!Array.isArray(choices) || choices.every(isSaid)) return '';
  return ` One of ${choices.map((choice) => (choice === '' ? 'empty' : `\`${choice}\``)).join(', ')}.`;
}

function indentBy(text: string, indent: string): string {
  return text.replace(/^(?=.)/gm, indent);
}

function wrap(text: string, indent: string): string {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = `${lines.at(-1) ?? ''} ${word}`;
    if (lines.length > 0 && indent.length + line.length + 1 <= WIDTH) lines[lines.length - 1] = line;
    else lines.push(` ${word}`);
  }
  return lines.map((line) => `${indent}#${line}\n`).join('');
}
