/** Shapes of signers that are written from documents, by nothing but node:crypto. */
import { type Recipe, toOracle } from './documented.ts';
import { BODY_AND_TIME, type Delivery, type Oracle } from './oracle.ts';
import { hmac } from './recipes.ts';

/** Of every sender here. */
export const SECRET = 'lDQHScfUeXUKaQRNF+8XIiDKZ7XX3itB';

/** How a signature is written. */
export interface Writing {
  readonly algorithm?: 'sha1' | 'sha256' | 'sha512';
  readonly encoding?: 'hex' | 'base64';
  readonly prefix?: string;
  /** Headers beside the signature. */
  readonly more?: (delivery: Delivery) => Record<string, string>;
}

/** The signature covers only the body. */
export function ofBody(preset: string, source: string, header: string, content: unknown, writing: Writing = {}): Oracle {
  const { algorithm = 'sha256', encoding = 'hex', prefix = '', more } = writing;
  return toOracle({
    preset,
    source,
    content: () => content,
    toHeaders: (delivery) => ({
      ...more?.(delivery),
      [header]: `${prefix}${hmac(algorithm, SECRET, [delivery.body], encoding)}`,
    }),
  });
}

/** The signature covers the time and the body. */
export function ofTime(preset: string, source: string, content: unknown, toHeaders: Recipe['toHeaders']): Oracle {
  return toOracle({ preset, source, covers: BODY_AND_TIME, content: () => content, toHeaders });
}

/** By a header that has the time and the signature. */
export function ofEntries(
  preset: string,
  source: string,
  header: string,
  content: unknown,
  write: (delivery: Delivery) => string,
): Oracle {
  return ofTime(preset, source, content, (delivery) => ({ [header]: write(delivery) }));
}
