"""Valid files of every format, and the words that break them: what fuzz.py starts from."""

from __future__ import annotations

import json

NET = (
    'net { }\nnode a { states = ("x" "y"); }\nnode b { states = ("u" "v" "w"); }\n'
    "potential ( a ) { data = ( 0.15 0.85 ); }\n"
    "potential ( b | a ) { data = ((0.5 0.3 0.2)(0.1 0.2 0.7)); }\n"
)
XMLBIF = (
    '<?xml version="1.0"?>\n<BIF VERSION="0.3"><NETWORK><NAME>n</NAME>'
    '<VARIABLE TYPE="nature"><NAME>a</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>'
    '<VARIABLE TYPE="nature"><NAME>b</NAME><OUTCOME>u</OUTCOME><OUTCOME>v</OUTCOME></VARIABLE>'
    "<DEFINITION><FOR>a</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>"
    "<DEFINITION><FOR>b</FOR><GIVEN>a</GIVEN><TABLE>0.3 0.7 0.6 0.4</TABLE></DEFINITION></NETWORK></BIF>"
)
XDSL = (
    '<?xml version="1.0"?>\n<smile id="n" version="1.0"><nodes>'
    '<cpt id="a"><state id="x"/><state id="y"/><probabilities>0.2 0.8</probabilities></cpt>'
    '<cpt id="b"><state id="u"/><state id="v"/><parents>a</parents>'
    "<probabilities>0.3 0.7 0.6 0.4</probabilities></cpt></nodes></smile>"
)
MARKOV = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n4\n1.0 2.0 3.0 0.5\n6\n1 2 3 4 5 6\n"
BAYES = "BAYES\n2\n2 2\n2\n1 0\n2 0 1\n2\n0.2 0.8\n4\n0.3 0.7 0.6 0.4\n"
CHAIN = '{"transition": [[0.9, 0.1], [0.2, 0.8]], "length": 50, "initial": "stationary", "prefix": "X"}'
NETWORK = json.dumps(
    {
        "nodes": [
            {"name": "a", "states": ["x", "y"], "table": [0.2, 0.8]},
            {"name": "b", "states": ["u", "v"], "parents": ["a"], "table": [[0.3, 0.7], [0.6, 0.4]]},
        ],
        "records": ["a", "b"],
        "people": {"b": 2},
        "notes": ["made"],
    }
)
FAM = "F1 dad 0 0 1 -9\nF1 mum 0 0 2 -9\nF1 kid dad mum 1 2\nF1 sis dad mum 2 1\n"
PED = "F1 dad 0 0 1 1 A A\nF1 mum 0 0 2 1 A G\nF1 kid dad mum 1 2 A G\n"
LINKAGE = "1 1 0 0 3 0 0 1 1 0 0\n1 2 0 0 3 0 0 2 0 0 0\n1 3 1 2 0 4 4 1 0 0 0\n1 4 1 2 0 0 0 2 0 0 0\n"
TABLE = "id,father,mother,sex,twin,zygosity\nf,,,1,,\nm,,,2,,\na,f,m,1,b,mz\nb,f,m,1,a,mz\n"
GED = (
    "0 HEAD\n1 CHAR UTF-8\n0 @I1@ INDI\n1 NAME Ann /Lee/\n1 SEX F\n1 FAMS @F1@\n0 @I2@ INDI\n1 SEX M\n"
    "1 FAMS @F1@\n0 @I3@ INDI\n1 FAMC @F1@\n2 PEDI birth\n0 @F1@ FAM\n1 HUSB @I2@\n1 WIFE @I1@\n1 CHIL @I3@\n"
    "0 TRLR\n"
)
POINTS = "user,time,lat,lon\n" + "".join(
    f"u{k % 2},2020-01-01T00:{k:02d}:00Z,47.{k},8.{k}\n" for k in range(12)
)
PLT = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255\n0\n" + "".join(
    f"39.9{k},116.3{k},0,492,39744.1,2008-10-23,02:53:{k:02d}\n" for k in range(9)
)
GPX = (
    '<?xml version="1.0"?><gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>'
    + "".join(
        f'<trkpt lat="47.{k}" lon="8.{k}"><time>2020-01-01T00:0{k}:00Z</time></trkpt>' for k in range(6)
    )
    + "</trkseg></trk></gpx>"
)
GEOJSON = json.dumps(
    {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "properties": {"time": f"2020-01-01T00:0{k}:00Z", "user": "a"},
                "geometry": {"type": "Point", "coordinates": [8.5 + k / 10, 47.1]},
            }
            for k in range(5)
        ],
    }
)
MOVING = json.dumps(
    {
        "type": "Feature",
        "id": "a",
        "temporalGeometry": {
            "type": "MovingPoint",
            "datetimes": ["2020-01-01T00:00:00Z", "2020-01-01T00:05:00Z"],
            "coordinates": [[8.5, 47.1], [8.6, 47.2]],
        },
    }
)
GOOGLE = json.dumps(
    {"locations": [{"latitudeE7": 471000000, "longitudeE7": 85000000, "timestamp": "2020-01-01T00:00:00Z"}]}
)
AFREQ = "#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n1\trs1\tA\tG\t0.2\t9\nX\trs2\tC\tT\t0.5\t9\n"
FRQ = " CHR  SNP  A1  A2  MAF  NCHROBS\n   1  rs1   G   A  0.2  100\n   1  rs2   T   C  0.5  100\n"
VCF = (
    "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tdad\tmum\n"
    "1\t10\trs1\tA\tG\t.\tPASS\tAF=0.25\tGT:DP\t0/1:9\t1|1:8\n1\t20\trs2\tC\tT\t.\tPASS\tAF=0.5\tGT\t./.\t0/0\n"
)
CELLS = 'code,age,smoker\n1,40.5,True\n"2",,False\nx y,31,0\n'
SERIES = "hour,usage\n0,1.5\n1,2.5\n2,2.0\n3,0.5\n"
STUDY = "# who\nkid\nF1 sis\ndad\n"

HOSTILE = [
    "",
    "0",
    "-1",
    "1e999",
    "-1e-999",
    "nan",
    "NaN",
    "inf",
    "1" * 5000,
    "9" * 400,
    "1e400",
    "0x10",
    "1_000",
    "٣",
    "\x00",
    "\x1b[2J",
    "\u202e",
    "\ufeff",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    '"',
    "'",
    "`",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    "/*",
    "*/",
    "//",
    "%",
    "#",
    "|",
    ";",
    ",",
    "\t",
    "\r",
    "\n\n",
    "&a;",
    "<!ENTITY a 'b'>",
    "<!DOCTYPE x>",
    "<![CDATA[",
    "]]>",
    "null",
    "true",
    "[]",
    "{}",
    "../../etc/passwd",
    "a" * 3000,
    "2147483648",
    "-2147483649",
    "99999999999999999999",
    "1000000000",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:60Z",
    "@I1@",
    "0 HEAD",
    "type discrete [ 2 ] { x, y };",
    "default 0.5, 0.5;",
    "table",
    "property",
]
