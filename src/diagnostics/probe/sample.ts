/** Creates the events that a probe sends: from a template, each with a new ID. */

import type { EpochMilliseconds } from '../../core/clock.ts';
import { toMediaForm } from '../../core/head.ts';
import { isJsonObject, type JsonPath, parseJsonPath } from '../../core/json-path.ts';
import { TIMESTAMP_FORMATS } from '../../verify/schemes/coverage.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';

/** Writes events as bodies. */
export interface ProbeSample {
  /** The events are JSON objects, so they can be written in several equivalent forms. */
  readonly isJson: boolean;
  /** Compact; `note` is added as a member. */
  write(id: string, at: EpochMilliseconds, note?: string): Buffer;
  /** With line endings, spaces, escapes and a member order that no serializer would write. */
  writeOddly(id: string, at: EpochMilliseconds): Buffer;
  /** With exactly this many bytes. */
  writeLong(id: string, at: EpochMilliseconds, bytes: number): Buffer;
}

type Event = Readonly<Record<string, unknown>>;
type ToEvent = (id: string, at: EpochMilliseconds) => Event;

const NOTE = 'a test event; safe to ignore';

/** Creates a sample in the format of the scheme's sender; without a template, the event describes itself. */
export function createSample(description: SchemeDescription, template?: Buffer): ProbeSample {
  if (template === undefined)
    return toMediaForm(description.contentTypes[0] ?? '') === 'form' ? createFormSample() : createJsonSample(description);
  const given = parseObject(template);
  if (given !== undefined) return createJsonSample(description, given);
  // A template that is not JSON cannot be changed, so only the headers distinguish the events.
  return { isJson: false, write: () => template, writeOddly: () => template, writeLong: () => template };
}

function createFormSample(): ProbeSample {
  const write = (id: string): Buffer => Buffer.from(`${new URLSearchParams({ type: 'sidegate.probe', id, note: NOTE })}`);
  return { isJson: false, write, writeOddly: write, writeLong: write };
}

function createJsonSample(description: SchemeDescription, given?: Event): ProbeSample {
  const places = compilePlaces(description);
  const toEvent: ToEvent = (id, at) => {
    const event = given ?? { type: 'sidegate.probe', id, created: Math.floor(at / 1000), data: { note: NOTE } };
    // If the template has an ID, it must equal the one in the headers.
    return places('id' in event ? { ...event, id } : event, id, at);
  };
  // The app may validate a template against a schema, so only our own event gets additional members.
  const canAddMembers = given === undefined;
  return {
    isJson: true,
    write: (id, at, note) => Buffer.from(JSON.stringify({ ...toEvent(id, at), ...(note !== undefined && { note }) })),
    writeOddly: (id, at) => Buffer.from(toOddText({ ...toEvent(id, at), ...(canAddMembers && { note: 'é 🎉 $& $$ $1 \\' }) })),
    writeLong: (id, at, bytes) => pad(toEvent(id, at), canAddMembers, bytes),
  };
}

/** Writes ID and timestamp where the scheme reads them in the body. */
function compilePlaces({
  id: idSource,
  timestamp,
}: SchemeDescription): (event: Event, id: string, at: EpochMilliseconds) => Event {
  const idPath = idSource !== undefined && 'json' in idSource ? toPath(idSource.json) : undefined;
  const timePath = timestamp !== undefined && 'json' in timestamp.from ? toPath(timestamp.from.json) : undefined;
  const toTime = (at: EpochMilliseconds): unknown => {
    const { format, isNumber } = TIMESTAMP_FORMATS[timestamp?.unit ?? 's'];
    return isNumber ? Number(format(at)) : format(at);
  };
  return (event, id, at) => {
    const identified = idPath === undefined ? event : writeAt(event, idPath.steps, id);
    return timePath === undefined ? identified : writeAt(identified, timePath.steps, toTime(at));
  };
}

function toPath(text: string): JsonPath | undefined {
  const path = parseJsonPath(text);
  return 'problem' in path ? undefined : path;
}

/** Creates missing members on the path; does not descend into arrays. */
function writeAt(event: Event, [step, ...rest]: readonly (string | number)[], value: unknown): Event {
  if (typeof step !== 'string') return event;
  const inner = Object.hasOwn(event, step) ? event[step] : {};
  if (rest.length === 0) return { ...event, [step]: value };
  return isJsonObject(inner) ? { ...event, [step]: writeAt(inner, rest, value) } : event;
}

function parseObject(template: Buffer): Event | undefined {
  try {
    const value: unknown = JSON.parse(template.toString());
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function toOddText(event: Event): string {
  const members = Object.entries(event)
    .reverse()
    .map(([name, value]) => `\t${JSON.stringify(name)} : ${toOddValue(value)}`);
  return `{\r\n${members.join(' ,\r\n')}\n }\n\n`;
}

/** Escapes the first character, which no serializer does with letters. */
function toOddValue(value: unknown): string {
  if (typeof value !== 'string' || value === '') return JSON.stringify(value);
  return `"\\u${value.charCodeAt(0).toString(16).padStart(4, '0')}${JSON.stringify(value.slice(1)).slice(1)}`;
}

/** Pads with a member if allowed, otherwise with spaces, which have no meaning in JSON (RFC 8259 §2). */
function pad(event: Event, canAddMembers: boolean, bytes: number): Buffer {
  const bare = Buffer.from(JSON.stringify(canAddMembers ? { ...event, padding: '' } : event));
  const missing = Math.max(0, bytes - bare.length);
  if (!canAddMembers) return Buffer.concat([bare.subarray(0, -1), Buffer.alloc(missing, ' '), bare.subarray(-1)]);
  return Buffer.from(JSON.stringify({ ...event, padding: 'x'.repeat(missing) }));
}
