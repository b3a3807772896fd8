package drawing

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// canvas is a picture that is drawn on.
type canvas struct {
	*image.RGBA
	small, normal, title, big font.Face
}

// box is a part of a picture, in pixels.
type box struct{ x, y, w, h float64 }

// inset returns the box without a margin on each side.
func (b box) inset(left, top, right, bottom float64) box {
	return box{b.x + left, b.y + top, b.w - left - right, b.h - top - bottom}
}

func newCanvas(width, height int, background color.Color) (*canvas, error) {
	c := &canvas{RGBA: image.NewRGBA(image.Rect(0, 0, width, height))}
	draw.Draw(c, c.Bounds(), image.NewUniform(background), image.Point{}, draw.Src)
	for _, made := range []struct {
		face *font.Face
		ttf  []byte
		size float64
	}{
		{&c.small, goregular.TTF, 11}, {&c.normal, goregular.TTF, 12}, {&c.title, gobold.TTF, 13}, {&c.big, gobold.TTF, 30},
	} {
		parsed, err := opentype.Parse(made.ttf)
		if err != nil {
			return nil, fmt.Errorf("parsing a font: %w", err)
		}
		options := &opentype.FaceOptions{Size: made.size, DPI: 72, Hinting: font.HintingFull}
		if *made.face, err = opentype.NewFace(parsed, options); err != nil {
			return nil, fmt.Errorf("making a font of size %g: %w", made.size, err)
		}
	}
	return c, nil
}

// rect fills a box.
func (c *canvas) rect(b box, fill color.Color) {
	area := image.Rect(int(math.Round(b.x)), int(math.Round(b.y)), int(math.Round(b.x+b.w)), int(math.Round(b.y+b.h)))
	draw.Draw(c, area, image.NewUniform(fill), image.Point{}, draw.Over)
}

// area fills a polygon.
func (c *canvas) area(points [][2]float64, fill color.Color) {
	if len(points) < 3 {
		return
	}
	low, high := points[0], points[0]
	for _, p := range points {
		low = [2]float64{math.Min(low[0], math.Floor(p[0])), math.Min(low[1], math.Floor(p[1]))}
		high = [2]float64{math.Max(high[0], math.Ceil(p[0])), math.Max(high[1], math.Ceil(p[1]))}
	}
	// The rasterizer looks at all its pixels, so it has only those of the polygon.
	bounds := image.Rect(int(low[0]), int(low[1]), int(high[0])+1, int(high[1])+1)
	r := vector.NewRasterizer(bounds.Dx(), bounds.Dy())
	for i, p := range points {
		x, y := float32(p[0])-float32(bounds.Min.X), float32(p[1])-float32(bounds.Min.Y)
		if i == 0 {
			r.MoveTo(x, y)
		} else {
			r.LineTo(x, y)
		}
	}
	r.ClosePath()
	r.Draw(c, bounds, image.NewUniform(fill), image.Point{})
}

// line draws one of a width through points.
func (c *canvas) line(points [][2]float64, width float64, ink color.Color) {
	for i := 1; i < len(points) && width > 0; i++ {
		a, b := points[i-1], points[i]
		dx, dy := b[0]-a[0], b[1]-a[1]
		length := math.Hypot(dx, dy)
		if length == 0 {
			continue
		}
		nx, ny := -dy/length*width/2, dx/length*width/2
		c.area([][2]float64{
			{a[0] + nx, a[1] + ny}, {b[0] + nx, b[1] + ny}, {b[0] - nx, b[1] - ny}, {a[0] - nx, a[1] - ny},
		}, ink)
	}
}

// width is how many pixels a text takes.
func width(face font.Face, text string) float64 { return float64(font.MeasureString(face, text)) / 64 }

// text writes at a baseline; align is 0 for the left end at x, 0.5 for the middle, 1 for the right end. What is longer
// than a limit ends with an ellipsis; 0 is no limit.
func (c *canvas) text(face font.Face, x, y, align, limit float64, ink color.Color, text string) {
	if limit > 0 && width(face, text) > limit {
		letters := []rune(text)
		for len(letters) > 0 && width(face, string(letters)+"…") > limit {
			letters = letters[:len(letters)-1]
		}
		text = string(letters) + "…"
	}
	x -= align * width(face, text)
	drawer := font.Drawer{Dst: c, Src: image.NewUniform(ink), Face: face}
	drawer.Dot = fixed.P(int(math.Round(x)), int(math.Round(y)))
	drawer.DrawString(text)
}

// mix returns the color between several at a place from 0 to 1.
func mix(place float64, colors ...color.RGBA) color.RGBA {
	place = math.Max(0, math.Min(1, place)) * float64(len(colors)-1)
	i := min(int(place), len(colors)-2)
	part := place - float64(i)
	between := func(a, b uint8) uint8 { return uint8(math.Round(float64(a)*(1-part) + float64(b)*part)) }
	a, b := colors[i], colors[i+1]
	return color.RGBA{between(a.R, b.R), between(a.G, b.G), between(a.B, b.B), 255}
}

func hex(text string) color.RGBA {
	c := color.RGBA{A: 255}
	if _, err := fmt.Sscanf(text, "#%02x%02x%02x", &c.R, &c.G, &c.B); err != nil {
		panic(err)
	}
	return c
}

func faded(c color.RGBA, alpha float64) color.Color {
	return color.NRGBA{c.R, c.G, c.B, uint8(alpha * 255)}
}
