/** The generated tables of the reference pages: of commands, config keys, annotations, presets, senders, checks and fixtures. */
import type { Command } from 'commander';
import { isOfSender, RETRIES, toAccepted, toChanges, toId, toSignature, toSigned, toTime } from '../src/cli/sender-page.ts';
import { toJsonSchema } from '../src/config/schema/json-schema.ts';
import { REFUSALS, type RefusalCode } from '../src/core/refusal.ts';
import { GROUPS } from '../src/diagnostics/probe/check.ts';
import { CHECKS } from '../src/diagnostics/probe/run-checks.ts';
import { toFixturesJsonSchema } from '../src/diagnostics/simulate/fixtures.ts';
import { DOMAIN } from '../src/kubernetes/injector/names.ts';
import { SETTINGS } from '../src/kubernetes/injector/settings.ts';
import { PRESETS } from '../src/verify/presets/catalogue.ts';
import { SENDERS, toMeaning } from '../src/verify/presets/senders.ts';
import { toSnsHost } from '../src/verify/schemes/aws-sns.ts';
import { toConfirming } from '../test/support/confirming.ts';
import { createHelpProgram } from './man-page.ts';
import { toTable } from './markdown.ts';
import { type Row, toKeyTable, toRows } from './schema-rows.ts';

/** The width of the help texts, independent of the terminal. */
const HELP_WIDTH = 100;
const KEY_HEAD = ['key', 'value', 'default', 'meaning'];
/** The keys of a step are those of a test. */
const STEPS = 'tests[].steps[].';
/** A list that is too long for the table. */
const DECISION_LIST = /^`forwarded`(?:, `[a-z_]+`)+/;

const SENDER_PRESETS = PRESETS.filter(isOfSender);

const toCode = (text: string): string => `\`${text}\``;

/** The help of every command. */
export function renderCommands(): string {
  return createHelpProgram()
    .commands.flatMap((command) => renderCommand(command, 'sidegate'))
    .join('\n');
}

/** A command, and the commands of a group. */
function renderCommand(command: Command, before: string): string[] {
  command.configureHelp({ helpWidth: HELP_WIDTH }).configureOutput({ getOutHasColors: () => false });
  const name = `${before} ${command.name()}`;
  let help = '';
  command.configureOutput({ writeOut: (text) => (help += text) });
  command.outputHelp();
  const own = `### ${name}\n\n\`\`\`text\n${help.trimEnd()}\n\`\`\`\n`;
  return [own, ...command.commands.flatMap((member) => renderCommand(member, name))];
}

/** The heading of a section of the config page, and the mark of its table, which lists the objects that the table describes. */
const KEY_TABLE = /^## ([^\n]+)\n(?:(?!^## )[^])*?<!-- (keys of ([^:]+)): written/gm;

interface KeyTable {
  readonly name: string;
  readonly link: string;
  /** If there are several, they share the table, with keys relative to the object. */
  readonly objects: readonly string[];
  readonly rows: ObjectRow[];
}

interface ObjectRow extends Row {
  readonly object: string;
}

/** The tables of the config page by the names of their blocks: the table of the innermost object describes a key. */
export function toConfigTables(page: string): Record<string, () => string> {
  const tables = [...page.matchAll(KEY_TABLE)].map(
    ([, title = '', name = '', objects = '']): KeyTable => ({
      name,
      link: `[${title}](#${title.toLowerCase().replaceAll(' ', '-')})`,
      objects: objects.split(', '),
      rows: [],
    }),
  );
  const all = tables.flatMap((table) =>
    table.objects.flatMap((object) => object.split(' and ').map((one) => ({ table, object: one }))),
  );
  const byLength = all.sort((a, b) => b.object.length - a.object.length);
  for (const row of toRows(toJsonSchema(), '')) {
    const [own, outer] = byLength.filter(({ object }) => isWithin(row.key, object));
    if (own === undefined) throw new Error(`no table of docs/config.md describes ${row.key}`);
    const isObject = row.key === toObjectKey(own.object);
    const { table, object } = isObject && outer !== undefined ? outer : own;
    table.rows.push(table === own.table ? { ...row, object } : { ...row, object, text: `${row.text} Keys: ${own.table.link}.` });
  }
  return Object.fromEntries(tables.map((table) => [table.name, () => toKeyTable(KEY_HEAD, joinRows(table))]));
}

const toObjectKey = (object: string): string => object.replace(/\[\]$/, '');

function isWithin(key: string, object: string): boolean {
  return key === toObjectKey(object) || key.startsWith(`${object}.`) || key.startsWith(`${object}[`);
}

/** A row that is not the same in all objects of a table names those that it is for. */
function joinRows({ objects, rows }: KeyTable): readonly Row[] {
  if (objects.length === 1) return rows;
  const relative = rows.map((row) => ({ ...row, key: row.key.slice(row.object.length + 1) })).filter(({ key }) => key !== '');
  const groups = Object.values(
    Object.groupBy(relative, ({ key, value, fallback, text }) => [key, value, fallback, text].join('|')),
  );
  return groups.flatMap((group = []) => {
    const names = group.map(({ object }) => toCode(object)).join(', ');
    return group
      .slice(0, 1)
      .map((row) => (group.length === objects.length ? row : { ...row, text: `${row.text} Only for ${names}.` }));
  });
}

export function renderFixtureKeys(): string {
  const rows = toRows(toFixturesJsonSchema(), '').filter(({ key }) => !key.startsWith(STEPS) || key === `${STEPS}name`);
  const shown = rows.map((row): Row => ({ ...row, value: row.value.replace(DECISION_LIST, '`forwarded` or a code') }));
  return toKeyTable(KEY_HEAD, shown);
}

export function renderAnnotations(): string {
  const rows = Object.values(SETTINGS).map(({ name, form, fallback, description, example }) => [
    toCode(`${DOMAIN}/${name}`),
    form.expected,
    fallback,
    description,
    toCode(example),
  ]);
  return toTable(['annotation', 'value', 'default', 'description', 'example'], rows);
}

export function renderPresets(): string {
  const rows = SENDER_PRESETS.map((preset) => [
    toCode(preset.name),
    preset.from.title,
    toSignature(preset),
    toSigned(preset),
    toTime(preset),
    toId(preset),
    preset.contentTypes.map(toCode).join(', '),
  ]);
  return toTable(['scheme', 'sender', 'signature', 'signed', 'time, tolerance', 'id', 'content'], rows);
}

export function renderPresetKeys(): string {
  const rows = SENDER_PRESETS.map((preset) => {
    const { name, from } = preset;
    return [toCode(name), from.key, toConfirming(preset).join('; '), `[document](${from.docs})`];
  });
  return toTable(['scheme', 'key', 'confirmed by', 'document'], rows);
}

/** The hosts that presets name, which nobody configures. */
export function renderHosts(): string {
  const rows = PRESETS.map(({ name, jwksUrl, certificate, isSignedInContent = false }) => {
    const sns = isSignedInContent ? ['<region>', 'cn-<region>'].map(toSnsHost) : [];
    const hosts = [...(jwksUrl === undefined ? [] : [new URL(jwksUrl).host]), ...(certificate?.hosts ?? []), ...sns];
    return [toCode(name), hosts.map(toCode).join(', ')];
  }).filter(([, hosts]) => hosts !== '');
  return toTable(['scheme', 'hosts'], rows);
}

/** Every check of the probe, by group. */
export function renderChecks(): string {
  const head = ['check', 'severity', 'sent', 'expected', 'impact of a failure'];
  const toRow = ({ id, severity, sent, expected, impact }: (typeof CHECKS)[number]): string[] => [
    toCode(id),
    severity,
    sent,
    expected,
    impact,
  ];
  const tables = Object.entries(GROUPS).map(
    ([group, title]) => `## ${title}\n\n${toTable(head, CHECKS.filter((check) => check.group === group).map(toRow))}`,
  );
  return tables.join('\n');
}

/** How each sender interprets responses. */
export function renderSenders(): string {
  const head = ['sender', 'scheme', 'counts as delivered', 'retries', 'never retries after', 'disables the endpoint after'];
  const rows = SENDER_PRESETS.map(({ name, from }) => {
    const profile = SENDERS[name] ?? {};
    const { retries, givesUpOn = [], disabledBy = [], waitsSeconds, schedule = '' } = profile;
    const cells = [
      from.title,
      toCode(name),
      toAccepted(profile),
      retries === undefined ? '' : RETRIES[retries],
      givesUpOn.join(', '),
      disabledBy.join(', '),
      waitsSeconds === undefined ? '' : `${waitsSeconds} s`,
      schedule,
      toChanges(name),
    ];
    return cells.map((cell) => cell || '–');
  });
  return toTable([...head, 'timeout', 'schedule', 'other statuses'], rows);
}

export function renderMeanings(): string {
  const codes = Object.keys(REFUSALS) as RefusalCode[];
  const rows = (['done', 'never', 'later'] as const).map((meaning) => {
    const own = codes.filter((code) => toMeaning(code) === meaning);
    return [meaning, own.map(toCode).join(', ')];
  });
  return toTable(['meaning', 'codes'], rows);
}
