/** Changes the text of a secret as its sender does before it uses it as a key. */

/** `nfkd`: Unicode normalization. `html-entities`: decoded, as WordPress does with `wp_specialchars_decode` and ENT_QUOTES. */
export type SecretTransform = 'nfkd' | 'html-entities';

const ENTITY = /&(?:(quot|lt|gt|amp)|#0{0,9}(34|38|39|60|62)|#[xX]0{0,9}(22|26|27));/g;
const NAMED: Readonly<Record<string, string>> = { quot: '"', lt: '<', gt: '>', amp: '&' };

const TRANSFORMS: Readonly<Record<SecretTransform, (text: string) => string>> = {
  nfkd: (text) => text.normalize('NFKD'),
  'html-entities': (text) =>
    text.replace(ENTITY, (_, name: string | undefined, decimal: string | undefined, hex: string | undefined) => {
      if (name !== undefined) return NAMED[name] ?? '';
      return String.fromCharCode(decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal));
    }),
};

/** The bytes of the key. Bytes that are not UTF-8 stay as they are. */
export function transformSecret(bytes: Buffer, transform: SecretTransform | undefined): Buffer {
  if (transform === undefined) return bytes;
  try {
    return Buffer.from(TRANSFORMS[transform](new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)));
  } catch {
    return bytes;
  }
}
