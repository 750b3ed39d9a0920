/** Assembles the signed bytes from the pieces that a scheme lists. */
import { hash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { SignedHead } from '../../core/event.ts';
import type { Chunks } from '../../core/hmac.ts';
import type { Piece, SchemeDescription } from './description.ts';
import { toFormText } from './form.ts';
import { compileRemoval, removeParameter } from './removal.ts';
import type { Message } from './scheme.ts';
import { parseStrictForm } from './strict-form.ts';
import { toContentDigest, toTarget } from './url.ts';

/** The parts of a head that can be signed. */
type SignedParts = Pick<SignedHead, 'id' | 'timestampText' | 'fields'>;

/** Assembles the pieces of a message for one form of its URL. Undefined if no signature can be valid for the message. */
export type Assemble = (head: SignedParts, message: Message) => (url: string) => Chunks | undefined;

/** A message whose form is parsed lazily, and only once for any number of URLs. */
interface Content extends Message {
  readonly toForm: () => Buffer | undefined;
}

type AssembleContent = (head: SignedParts, content: Content, url: string) => Chunks | undefined;

/** Compiles the description's pieces. */
export function compilePieces(description: SchemeDescription): Assemble {
  const { signed, contentDigestParameter } = description;
  const byForm = toAssemble(description);
  if (contentDigestParameter === undefined) return bindContent(byForm);
  const byDigest = toAssemble({ ...description, signed: signed.filter((piece) => piece !== 'form') });
  return bindContent((head, content, url) => {
    const isBound = toContentDigest(content, contentDigestParameter);
    if (isBound === undefined) return byForm(head, content, url);
    return isBound ? byDigest(head, content, url) : undefined;
  });
}

function bindContent(assemble: AssembleContent): Assemble {
  return (head, { method, url: received, body }) => {
    let form: { readonly text: Buffer | undefined } | undefined;
    const toForm = (): Buffer | undefined => {
      form ??= { text: toFormText(body) };
      return form.text;
    };
    const content: Content = { method, url: received, body, toForm };
    return (url) => assemble(head, content, url);
  };
}

type Write = (head: SignedParts, content: Content, url: string) => string | Buffer | undefined;

function toAssemble(description: SchemeDescription): AssembleContent {
  const { separator } = description;
  const writers = toWriters(description);
  return (head, content, url) => {
    const values: (string | Buffer)[] = [];
    for (const write of writers) {
      const value = write(head, content, url);
      if (value === undefined) return undefined;
      values.push(value);
    }
    return gather(values, separator);
  };
}

/** Joins adjacent strings, because each update of a MAC is a call into native code. */
function gather(values: readonly (string | Buffer)[], separator: string): Chunks {
  const chunks: (string | Buffer)[] = [];
  let text = '';
  for (const [index, value] of values.entries()) {
    if (index > 0) text += separator;
    if (typeof value === 'string') {
      text += value;
      continue;
    }
    if (text !== '') chunks.push(text);
    chunks.push(value);
    text = '';
  }
  if (text !== '') chunks.push(text);
  return chunks;
}

const WRITERS: Readonly<Record<Exclude<Extract<Piece, string>, `${string}WithoutSignature`>, Write>> = {
  id: (head) => head.id ?? '',
  timestamp: (head) => head.timestampText ?? '',
  body: (_, { body }) => body,
  form: (_, { toForm }) => toForm(),
  method: (_, { method }) => method,
  url: (_head, _content, url) => url,
  target: (_head, _content, url) => toTarget(url),
  crc32: (_, { body }) => String(crc32(body)),
  // The config's rules require the ID, which then replaces this piece (receiver-id.ts).
  receiverId: () => undefined,
};

/** Fields are numbered in the order of `SignedHead.fields`. */
function toWriters(description: SchemeDescription): Write[] {
  let fields = 0;
  return description.signed.map((piece) => {
    if (piece === 'body' && description.contentField !== undefined) return compileContentField(description.contentField);
    if (piece === 'bodyWithoutSignature') return compileBodyRemoval(description);
    if (piece === 'urlWithoutSignature') return compileUrlRemoval(description);
    if (typeof piece === 'string') return WRITERS[piece];
    if ('text' in piece) return () => piece.text;
    if ('bodySha256' in piece) return (_, { body }) => hash('sha256', body, piece.bodySha256);
    const at = fields++;
    return (head) => head.fields?.[at];
  });
}

/** JSON never begins like the form, and the content gate rejects a form that is sent as JSON. */
function compileContentField(name: string): Write {
  const start = Buffer.from(`${name}=`);
  return (_, { body }) => {
    if (!body.subarray(0, start.length).equals(start)) return body;
    // An app could read another field, which nothing signs.
    const form = body.includes('&') ? undefined : parseStrictForm(body);
    return form?.kind === 'fields' ? Buffer.from(form.fields[0]?.value ?? '', 'latin1') : undefined;
  };
}

function compileBodyRemoval({ signature }: SchemeDescription): Write {
  const remove = compileRemoval(signature);
  return (_, { body }) => remove(body);
}

function compileUrlRemoval({ signature }: SchemeDescription): Write {
  const name = signature?.query ?? '';
  return (_head, _content, url) => removeParameter(url, name);
}
