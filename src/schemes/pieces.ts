/** Puts together what was signed, from the pieces that a scheme names. */
import type { SignedHead } from '../core/exchange.ts';
import type { Chunks } from './algorithms.ts';
import type { Piece, SchemeDescription } from './description.ts';
import { toFormText } from './form.ts';
import type { Message } from './scheme.ts';
import { toContentDigest } from './url.ts';

/** What of a head may be signed. */
type SignedParts = Pick<SignedHead, 'id' | 'timestampText'>;

/** The pieces of one message; `url` is one of the ways that the sender may have written it. Undefined: nothing can have signed it. */
export type Assemble = (head: SignedParts, message: Message, url: string) => Chunks | undefined;

/** Compiles the description's pieces. */
export function compilePieces({ signed, separator, contentDigestParameter }: SchemeDescription): Assemble {
  if (contentDigestParameter === undefined) return toAssemble(signed, separator);
  const byForm = toAssemble(signed, separator);
  const byDigest = toAssemble(
    signed.filter((piece) => piece !== 'form'),
    separator,
  );
  return (head, message, url) => {
    const isBound = toContentDigest(message, contentDigestParameter);
    if (isBound === undefined) return byForm(head, message, url);
    return isBound ? byDigest(head, message, url) : undefined;
  };
}

type Write = (head: SignedParts, message: Message, url: string) => string | Buffer;

function toAssemble(signed: readonly Piece[], separator: string): Assemble {
  const writers = signed.map(toWriter);
  return (head, message, url) => {
    const chunks: (string | Buffer)[] = [];
    // Text is gathered: each update of a MAC is a call into native code.
    let text = '';
    for (const [index, write] of writers.entries()) {
      const value = write(head, message, url);
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
  };
}

const WRITERS: Readonly<Record<Extract<Piece, string>, Write>> = {
  id: (head) => head.id ?? '',
  timestamp: (head) => head.timestampText ?? '',
  body: (_, message) => message.body,
  form: (_, message) => toFormText(message.body),
  method: (_, message) => message.method,
  url: (_head, _message, url) => url,
};

function toWriter(piece: Piece): Write {
  return typeof piece === 'string' ? WRITERS[piece] : () => piece.text;
}
