/** Which event a verified message is: its id, whether that was signed, and its time where the content holds it. */
import { hash } from 'node:crypto';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { type EventIdentity, type SignedHead, toDigestId } from '../../core/event.ts';
import { type JsonPath, parseJsonListPath, parseJsonPath, readJsonList, readJsonPath } from '../../core/json-path.ts';
import { type Chunks, toBytes } from './algorithms.ts';
import type { ContentShape, SchemeDescription, Source } from './description.ts';
import { VALID_ID } from './head.ts';
import type { Identified, Message } from './scheme.ts';
import { TIMESTAMP_FORMATS } from './timestamp.ts';

/** Identifies a message; `signed` gives what its signature covers. */
export type Identify = (head: SignedHead, message: Message, signed: () => Chunks) => Identified;

/** 132 bits: more than a birthday of all ids there ever are. */
const DIGEST_LENGTH = 22;

const isArray = (value: unknown): boolean => Array.isArray(value);
const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !isArray(value);

const SHAPES: Readonly<Record<ContentShape, { readonly title: string; fits(content: unknown): boolean }>> = {
  'json-object': { title: 'a JSON object', fits: isObject },
  'json-array': { title: 'a JSON array', fits: isArray },
  'json-object-or-array': { title: 'a JSON object or array', fits: (value) => isObject(value) || isArray(value) },
};

/** Compiles it; throws for a path that config or preset should not have let pass. */
export function compileIdentity(description: SchemeDescription): Identify {
  const { signed, contentShape } = description;
  const shape = contentShape === undefined ? undefined : SHAPES[contentShape];
  const readId = compileId(description.id);
  const readTime = compileTime(description);
  const isIdSigned = readId === undefined ? signed.includes('id') : signed.includes('body') || signed.includes('form');
  const readsContent = readId !== undefined || readTime !== undefined || shape !== undefined;
  return (head, message, toSigned) => {
    const content = readsContent ? parseContent(message.body) : undefined;
    if (shape?.fits(content) === false) return { problem: `the content is not ${shape.title}` };
    const timestamp = readTime === undefined ? head.timestamp : readTime(content);
    if (typeof timestamp === 'object') return timestamp;
    const id = readId === undefined ? head.id : readId(content);
    // A token says nothing of the rest of the message, so there is nothing that a digest could bind.
    if (signed.length === 0 || (id !== undefined && isIdSigned)) return { id, timestamp };
    return { ...identifyByContent(toSigned(), id, head.kind), timestamp };
  };
}

/** Reads the id where the content holds it. */
function compileId(source: Source | undefined): ((content: unknown) => string | undefined) | undefined {
  if (source === undefined || !('json' in source)) return undefined;
  const list = parseJsonListPath(source.json);
  if (list !== undefined) return (content) => toCommonId(readJsonList(list, content)?.map(toId) ?? []);
  const path = toPath(source);
  return path === undefined ? undefined : (content) => toId(readJsonPath(path, content));
}

/** Of several events in one delivery: one known event among new ones must not make them all known. */
function toCommonId(ids: readonly (string | undefined)[]): string | undefined {
  if (ids.length <= 1 || ids.includes(undefined)) return ids.length === 1 ? ids[0] : undefined;
  return toDigestId(toDigest([ids.join('\n')]));
}

/** Reads the time where the content holds it. */
function compileTime({
  timestamp: time,
}: SchemeDescription): ((content: unknown) => EpochMilliseconds | { problem: string }) | undefined {
  if (time === undefined || !('json' in time.from)) return undefined;
  const { json } = time.from;
  const path = toPath(time.from) as JsonPath;
  const format = TIMESTAMP_FORMATS[time.unit];
  return (content) =>
    format.parse(toText(readJsonPath(path, content)) ?? '') ?? { problem: `${json} in the content is not ${format.form}` };
}

function toPath(source: Source | undefined): JsonPath | undefined {
  if (source === undefined || !('json' in source)) return undefined;
  const path = parseJsonPath(source.json);
  if ('problem' in path) throw new Error(path.problem);
  return path;
}

/** Undefined where it is no JSON: then nothing stands anywhere in it. */
function parseContent(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
}

/** One that no log line or key can trip over. */
function toId(value: unknown): string | undefined {
  const text = toText(value);
  return text !== undefined && VALID_ID.test(text) ? text : undefined;
}

function toText(value: unknown): string | undefined {
  // Beyond 2^53 JavaScript reads different numbers as the same, and two events would be one.
  return typeof value === 'string' || Number.isSafeInteger(value) ? String(value) : undefined;
}

/** By what was signed, as the id is not or there is none; with an unsigned kind each kind is an event of its own. */
function identifyByContent(signed: Chunks, id: string | undefined, kind: string | undefined): Omit<EventIdentity, 'timestamp'> {
  const contentDigest = toDigest(signed);
  if (kind === undefined) return { id: id ?? toDigestId(contentDigest), digest: contentDigest };
  const digest = toDigest([...signed, `\0${kind}`]);
  return { id: id ?? toDigestId(digest), digest, contentDigest };
}

function toDigest(chunks: Chunks): string {
  const [only] = chunks;
  const bytes = chunks.length === 1 && Buffer.isBuffer(only) ? only : toBytes(chunks);
  return hash('sha256', bytes, 'base64url').slice(0, DIGEST_LENGTH);
}
