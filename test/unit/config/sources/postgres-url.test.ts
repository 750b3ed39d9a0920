import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { describe, expect, test } from 'vitest';
import { type PostgresUrlRead, readPostgresUrl } from '../../../../src/config/sources/provider-files.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { useFolder } from '../../../support/fixtures.ts';

const folder = useFolder();
const read = (text: string): Promise<PostgresUrlRead> => readPostgresUrl(new Secret(Buffer.from(text)));

describe('reads', () => {
  test('all parts, with percent-encoded characters', async () => {
    const found = await read('postgres://my%20app:p%2F%40%3A%25w@db.example.com:6543/my%2Fdb?sslmode=verify-full');
    expect(found).toMatchObject({
      target: { host: 'db.example.com', port: 6543, database: 'my/db', user: 'my app', tls: { verify: 'full', ca: undefined } },
      warnings: [],
    });
    expect('target' in found && found.target.password?.expose().toString()).toBe('p/@:%w');
  });

  test.each([
    ['postgresql://a:b@10.1.2.3/c', { host: '10.1.2.3', port: 5432, tls: { verify: 'full' } }],
    ['postgres://a@[::1]/c', { host: '::1', password: undefined, tls: undefined }],
    ['postgres://a:b@127.0.0.1/c', { host: '127.0.0.1', tls: undefined }],
    ['postgres://a:b@localhost/c', { host: 'localhost', tls: undefined }],
    ['postgres://a:b@%2Frun%2Fpostgresql/c', { host: '/run/postgresql', tls: undefined }],
    ['postgres://a:b@localhost/c?host=/run/postgresql', { host: '/run/postgresql', tls: undefined }],
    ['postgres://a:b@localhost/c?sslmode=verify-ca&sslrootcert=system', { tls: { verify: 'ca', ca: undefined } }],
  ])('%s', async (text, target) => {
    expect(await read(text)).toMatchObject({ target, warnings: [] });
  });

  test('the files of TLS; with a CA, sslmode=require verifies it, as libpq does', async () => {
    const ca = rootCertificates[0] as string;
    for (const [name, text] of Object.entries({ ca, cert: 'cert', key: 'key' })) writeFileSync(join(folder, name), text);
    const search = `sslmode=require&sslrootcert=${folder}/ca&sslcert=${folder}/cert&sslkey=${folder}/key`;
    expect(await read(`postgres://a:b@db/c?${search}`)).toMatchObject({
      target: { tls: { verify: 'ca', ca, certificate: { cert: 'cert' } } },
      warnings: [],
    });
  });
});

test.each([
  ['postgres://a:b@db/c?sslmode=disable', 'sslmode=disable: events and the password cross the network without TLS'],
  ['postgres://a:b@db/c?sslmode=require', 'sslmode=require does not verify the certificate of the server'],
  ['postgres://a:b@localhost/c?application_name=x', 'the parameter "application_name" of the URL is ignored'],
])('warns about %s', async (text, warning) => {
  expect(await read(text)).toMatchObject({ warnings: [expect.stringContaining(warning)] });
});

test.each([
  ['db.example.com', 'it is not the URL of a PostgreSQL database with one host'],
  ['mysql://a:b@db/c', 'it is not the URL'],
  ['postgres://a:b@one,two:5432/c', 'it is not the URL'],
  ['postgres://db/c', 'the URL names no user'],
  ['postgres://a:b@db', 'the URL names no database'],
  ['postgres:///c?host=/run', 'the URL names no user'],
  ['postgres://a:50%@db/c', 'the URL has a % that is not part of a percent-encoded character'],
  ['postgres://a:b@db/c?sslmode=prefer', 'sslmode=prefer is not supported'],
  ['postgres://a:b@db/c?sslmode=constructor', 'sslmode=constructor is not supported'],
  ['postgres://a:b@db/c?sslrootcert=ca.pem', 'sslrootcert is not an absolute path'],
  ['postgres://a:b@db/c?sslrootcert=/none/ca.pem', 'sslrootcert: /none/ca.pem does not exist'],
  [`postgres://a:b@db/c?sslrootcert=${import.meta.filename}`, `sslrootcert: ${import.meta.filename} contains no certificate`],
  ['postgres://a:b@db/c?sslcert=/etc/passwd', 'only one of sslcert and sslkey is set'],
])('rejects %s', async (text, problem) => {
  expect(await read(text)).toMatchObject({ problem: expect.stringContaining(problem), hint: expect.any(String) });
});

// Each has a password that is not percent-encoded.
test.each([
  'postgres://user:hunter/two@db/c',
  'postgres://user:hunter?two@db/c',
  'postgres://user:hunter#two@db/c',
  'postgres://user:hunter@two/x@db/c',
  'postgres://user:hunter@two/x?y@db/c',
  'postgres://user:12/hunter@db/c',
  'postgres://user:hunter%two@db/c',
])('says nothing of the password in %s', async (text) => {
  const found = await read(text);
  expect(found).toHaveProperty('problem');
  expect(JSON.stringify(found)).not.toMatch(/hunter|two/);
});
