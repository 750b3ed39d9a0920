/** IDs in XML: the only element at the path, in plain XML. */

import { describe, expect, test } from 'vitest';
import { compileXmlPath } from '../../../../src/verify/schemes/xml-path.ts';
import { fc } from '../../../support/property.ts';

const read = compileXmlPath('note/id');
const of = (xml: string): string | undefined => read(Buffer.from(xml));

describe('the text of an element', () => {
  test.each([
    ['alone', '<note><id>e1</id></note>', 'e1'],
    ['after a declaration and comments', '<?xml version="1.0"?><!-- <id>x</id> --><note><a/><id>e1</id></note>\n', 'e1'],
    ['with attributes', '<note xmlns="urn:a" b=\'<\'><id type="x">e1</id></note>'.replace("'<'", "'c'"), 'e1'],
    ['with a prefix', '<n:note xmlns:n="urn:a"><n:id>e1</n:id></n:note>', 'e1'],
    ['with references', '<note><id>&#101;&#x31;&amp;</id></note>', 'e1&'],
    ['in CDATA', '<note><id><![CDATA[e1]]></id></note>', 'e1'],
    ['around a comment', '<note><id>e<!-- -->1</id></note>', 'e1'],
    ['beside another path', '<note><x><id>no</id></x><id>e1</id></note>', 'e1'],
  ])('is read %s', (_, xml, expected) => {
    expect(of(xml)).toBe(expected);
  });

  test.each([
    ['repeated', '<note><id>e1</id><id>e2</id></note>'],
    ['missing', '<note><ID>e1</ID></note>'],
    ['elsewhere', '<other><id>e1</id></other>'],
    ['with an element in it', '<note><id><b>e1</b></id></note>'],
    ['after a document type, which can define entities', '<!DOCTYPE note [<!ENTITY a "b">]><note><id>e1</id></note>'],
    ['with another entity', '<note><id>&a;</id></note>'],
    ['with a bare ampersand', '<note><id>a & b</id></note>'],
    ['in XML that is not closed', '<note><id>e1</id>'],
    ['in XML that is closed in another order', '<note><id>e1</note></id>'],
    ['with an attribute without quotes', '<note a=b><id>e1</id></note>'],
    ['in a comment that is not closed', '<note><id>e1</id></note><!--'],
    ['in deep XML', `${'<a>'.repeat(100)}<note><id>e1</id></note>${'</a>'.repeat(100)}`],
    ['in no XML', '{"id":"e1"}'],
    ['in nothing', ''],
  ])('is undefined if it is %s', (_, xml) => {
    expect(of(xml)).toBeUndefined();
  });

  test('is found in any text without an exception, in linear time', () => {
    const token = fc.constantFrom(
      '<note>',
      '</note>',
      '<id>',
      '</id>',
      '<',
      '>',
      '&',
      '&#1;',
      '<!--',
      '-->',
      '<![CDATA[',
      ']]>',
      ' ',
      'a="b"',
      'e1',
      '<?',
      '?>',
    );
    fc.assert(fc.property(fc.array(token, { maxLength: 40 }), (tokens) => void of(tokens.join(''))));
    const started = performance.now();
    for (const text of ['<a ', '<a b="c" ', '<!--', '&#1;', '<![CDATA[']) of(`<note><id>${text.repeat(200_000)}`);
    expect(performance.now() - started).toBeLessThan(5_000);
  });
});
