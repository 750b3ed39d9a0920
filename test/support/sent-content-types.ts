/** Values of Content-Type that senders really send, for tests; from their documentation, their source or captured requests. */
import type { SchemeDescription } from '../../src/auth/schemes/description.ts';
import { toMediaForm } from '../../src/core/media-type.ts';

/** Beside those that JSON senders commonly send. */
const SENT: Readonly<Record<string, readonly string[]>> = {
  alipay: [
    'application/x-www-form-urlencoded; text/html; charset=utf-8',
    'application/x-www-form-urlencoded; text/html; charset=UTF-8',
  ],
  'aws-sns': ['text/plain; charset=UTF-8'],
  contentful: [
    'application/vnd.contentful.management.v1+json',
    'application/vnd.contentful.management.v1+json; charset=utf-8',
    'application/json; charset=utf-8',
  ],
  docusign: ['application/json; charset=utf-8'],
  quickbooks: ['application/cloudevents-batch+json'],
  ringcentral: ['application/json;charset=UTF-8'],
  twilio: ['application/x-www-form-urlencoded; charset=UTF-8'],
  wix: ['text/plain; charset=utf-8'],
};

/** All values with which a test sends a body of this preset: those of its media types, in the spellings that HTTP clients write. */
export function toSentTypes({ name, contentTypes }: SchemeDescription, body: Buffer): string[] {
  const start = body.subarray(0, 1).toString('latin1');
  const spellings = contentTypes.flatMap((type) =>
    type.includes(';')
      ? [type]
      : [type, `${type}; charset=utf-8`, `${type};charset=UTF-8`, `${type}; charset="utf-8"`, type.toUpperCase()],
  );
  return [...new Set([...(SENT[name] ?? []), ...spellings])].filter((type) => {
    const form = toMediaForm(type);
    if (form === 'multipart') return false;
    if (form === 'xml') return start === '<';
    return form === 'form' ? !'{[<'.includes(start) : form !== 'json' || start === '{' || start === '[';
  });
}
