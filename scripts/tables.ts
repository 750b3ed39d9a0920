/** The generated tables of the reference pages: of commands, config keys, annotations, presets, senders, checks and fixtures. */
import { Readable } from 'node:stream';
import type { Command } from 'commander';
import { createProgram } from '../src/cli/program.ts';
import { isOfSender, RETRIES, toAccepted, toChanges, toId, toSignature, toSigned, toTime } from '../src/cli/sender-page.ts';
import { toJsonSchema } from '../src/config/schema/json-schema.ts';
import type { RefusalCode } from '../src/core/refusal.ts';
import { REFUSALS } from '../src/core/refusal-catalogue.ts';
import { GROUPS } from '../src/diagnostics/probe/check.ts';
import { CHECKS } from '../src/diagnostics/probe/run-checks.ts';
import { toFixturesJsonSchema } from '../src/diagnostics/simulate/fixtures.ts';
import { DOMAIN } from '../src/kubernetes/injector/names.ts';
import { SETTINGS } from '../src/kubernetes/injector/settings.ts';
import { PRESETS } from '../src/verify/presets/catalogue.ts';
import { SENDERS, toMeaning } from '../src/verify/presets/senders.ts';
import { toConfirming } from '../test/support/confirming.ts';
import { type Row, toTable as toKeyTable, toRows } from './schema-rows.ts';

/** The width of the help texts, independent of the terminal. */
const HELP_WIDTH = 100;
const KEY_HEAD = '| key | value | default | meaning |\n| --- | --- | --- | --- |\n';
/** The keys of a step are those of a test. */
const STEPS = 'tests[].steps[].';
/** A list that is too long for the table. */
const DECISION_LIST = /^`forwarded`(?:, `[a-z_]+`)+/;

const SENDER_PRESETS = PRESETS.filter(isOfSender);

function toTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |\n`).join('');
}

const toCode = (text: string): string => `\`${text}\``;

/** The help of every command. */
export function renderCommands(): string {
  const silent = { env: {}, stdout: () => undefined, stderr: () => undefined };
  const program = createProgram({ ...silent, stdin: Readable.from([]) as NodeJS.ReadableStream }, () => undefined);
  return program.commands.flatMap((command) => renderCommand(command, 'sidegate')).join('\n');
}

/** A command, and the commands of a group. */
function renderCommand(command: Command, before: string): string[] {
  command.configureHelp({ helpWidth: HELP_WIDTH }).configureOutput({ getOutHasColors: () => false });
  const name = `${before} ${command.name()}`;
  const own = `### ${name}\n\n\`\`\`text\n${command.helpInformation().trimEnd()}\n\`\`\`\n`;
  return [own, ...command.commands.flatMap((member) => renderCommand(member, name))];
}

export function renderConfigKeys(): string {
  return KEY_HEAD + toKeyTable(toRows(toJsonSchema(), ''));
}

export function renderFixtureKeys(): string {
  const rows = toRows(toFixturesJsonSchema(), '').filter(({ key }) => !key.startsWith(STEPS) || key === `${STEPS}name`);
  const shown = rows.map((row): Row => ({ ...row, value: row.value.replace(DECISION_LIST, '`forwarded` or a code') }));
  return KEY_HEAD + toKeyTable(shown);
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
