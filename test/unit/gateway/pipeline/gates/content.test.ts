import { expect, test } from 'vitest';
import { parseMediaType } from '../../../../../src/core/head.ts';
import { compileBodyCheck } from '../../../../../src/gateway/pipeline/gates/content.ts';

const JSON_TYPE = 'application/json';
const FORM = 'application/x-www-form-urlencoded';

/** What the check says of a body. */
function check(contentType: string, body: string, accepted: readonly string[] = [contentType]): unknown {
  const mediaType = parseMediaType(contentType);
  if ('problem' in mediaType) throw new Error(mediaType.problem);
  return compileBodyCheck(accepted)(mediaType)(Buffer.from(body, 'latin1'));
}

test.each([
  ['JSON in UTF-16', JSON_TYPE, '\0{\0}', [JSON_TYPE], 'the JSON content is not UTF-8'],
  ['JSON as a form', FORM, '{"a":1}', [FORM], 'the content is not a form'],
  ['a form as JSON', JSON_TYPE, 'a=1', [JSON_TYPE, FORM], 'the content is not JSON'],
  [
    'JSON as text',
    'text/plain',
    '{"a":1}',
    ['text/plain', FORM],
    'the content is JSON, but Content-Type names another media type',
  ],
])('rejects %s with 415, and tells operators why', (_name, contentType, body, accepted, detail) => {
  expect(check(contentType, body, accepted)).toMatchObject({
    code: 'unsupported_media_type',
    reason: 'unsupported_media_type',
    detail,
  });
});

test.each([
  ['JSON', JSON_TYPE, ' {"a":1}'],
  ['a form', FORM, 'a=1&b=2'],
])('accepts %s', (_name, contentType, body) => {
  expect(check(contentType, body, [JSON_TYPE, FORM])).toBeUndefined();
});
